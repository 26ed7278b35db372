"""Rows that fail, and why they are allowed to for now. No leak stays here."""

WHY = {
    "CL with TE from HTTP/1.1 clients is not refused yet: hyper hides the length":
        "cl-te te-cl-order te-cl te-0-cl cl-te-agree cl-te-half cl-te-get cl-twice-te te-bare-lf-before-cl "
        "te-upper-case-cl expect-cl-te",
    "a length of 2^63 is passed on, which servers with a signed length do not know":
        "cl-2-to-63 h2-cl-2-to-63",
    "a length in an answer goes out with the zeros that its server wrote before it":
        "r-cl-leading-zeros",
    "a port of letters is passed on":
        "host-port-letters",
}
KNOWN = {name: why for why, names in WHY.items() for name in names.split()}
