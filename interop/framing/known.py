"""Rows that fail, and why they are allowed to for now. No leak stays here."""

WHY = {
    "a length of 2^63 is passed on, which servers with a signed length do not know":
        "cl-2-to-63 h2-cl-2-to-63",
    "a length in an answer goes out with the zeros that its server wrote before it":
        "r-cl-leading-zeros",
    "a port of letters is passed on":
        "host-port-letters",
}
KNOWN = {name: why for why, names in WHY.items() for name in names.split()}
