"""Reads callgrind's files: what each function executed itself, and to which crate it belongs."""

import re

# Functions that read the clock: without valgrind they do not enter the kernel.
CLOCK = re.compile(r"(?:__)?(?:vdso_)?(?:clock_gettime|gettimeofday|time)(?:@@.*)?")
# The crate in a Rust function's name, such as `<a::B as c::D>::e`.
RUST = re.compile(r"(?:[<&\[(*]|mut |dyn |const )*([a-z][a-z0-9_]*)::")
NOT_RUST = [
    ("the allocator", re.compile(r"_?mi_")),
    ("ciphers", re.compile(r".*(?:aes|gcm|aws_lc|sha256|sha512|bn_|ecp_|x25519)", re.IGNORECASE)),
    ("copying and comparing memory", re.compile(r"_*(?:mem|str)(?:cpy|move|set|cmp|len|chr)")),
]


def events_of(text):
    """Returns the names of the events, in the order of the costs."""
    return re.search(r"(?m)^events: (.*)$", text).group(1).split()


def own_costs(text):
    """Yields (function, costs) for each line of costs that are no callee's.

    Functions are written as `fn=(number) name`, or the number alone after the first time; then follows a line per
    source line, of its number and costs. A line after `calls=` has the costs of a callee."""
    names, function, is_callee = {}, None, False
    for line in text.splitlines():
        if line.startswith(("fn=", "cfn=")):
            key, _, rest = line.partition("=")
            number, _, name = rest.partition(" ")
            names.setdefault(number, name)
            if key == "fn":
                function = names[number]
        elif line.startswith("calls="):
            is_callee = True
        elif line[:1].isdigit() or line.startswith(("+", "-", "*")):
            if not is_callee:
                yield function, [int(cost) for cost in line.split()[1:]]
            is_callee = False


def clock_reads(text):
    """Returns the system calls of the functions that read the clock."""
    column = events_of(text).index("sysCount")
    return sum(costs[column] for name, costs in own_costs(text) if len(costs) > column and CLOCK.fullmatch(name))


def part_of(function):
    """Returns the crate of a function, or what it does if it is not written in Rust."""
    crate = RUST.match(function)
    if crate:
        return crate.group(1)
    return next((part for part, pattern in NOT_RUST if pattern.match(function)), "other")


def by_part(text):
    """Returns {part: instructions}."""
    found = {}
    for name, costs in own_costs(text):
        if costs:
            part = part_of(name)
            found[part] = found.get(part, 0) + costs[0]
    return found
