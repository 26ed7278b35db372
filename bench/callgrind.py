"""Reads callgrind's files: what each function executed itself, and to which crate it belongs."""

import collections
import re
import subprocess

# Functions that read the clock: without valgrind they do not enter the kernel.
CLOCK = re.compile(r"(?:__)?(?:vdso_)?(?:clock_gettime|gettimeofday|time)(?:@@.*)?")
# The crate in a Rust function's name, such as `<a::B as c::D>::e`.
RUST = re.compile(r"(?:[<&\[(*]|mut |dyn |const )*([a-z][a-z0-9_]*)::")
# Instructions that take a cache line for themselves, in objdump's words.
ATOMIC = re.compile(r"(?m)^\s*([0-9a-f]+):\s+(?:lock |xchg\s[^\n]*\()")
Own = collections.namedtuple("Own", "object function position costs")
NOT_RUST = [
    ("the allocator", re.compile(r"_?mi_")),
    ("ciphers", re.compile(r".*(?:aes|gcm|aws_lc|sha256|sha512|bn_|ecp_|x25519)", re.IGNORECASE)),
    ("copying and comparing memory", re.compile(r"_*(?:mem|str)(?:cpy|move|set|cmp|len|chr)")),
]


def events_of(text):
    """Returns the names of the events, in the order of the costs."""
    return re.search(r"(?m)^events: (.*)$", text).group(1).split()


def own_costs(text):
    """Yields an Own for each line of costs that are no callee's.

    Objects and functions are written as `fn=(number) name`, or the number alone after the first time; then follows a line
    per source line or instruction, of its position and costs. A line after `calls=` has the costs of a callee."""
    positions = len(re.search(r"(?m)^positions: (.*)$", text).group(1).split())
    names, now, is_callee = {}, {"ob": None, "fn": None}, False
    for line in text.splitlines():
        if line.startswith(("fn=", "cfn=", "ob=", "cob=")):
            key, _, rest = line.partition("=")
            number, _, name = rest.partition(" ")
            number = (key[-2:], number)
            names[number] = name or names[number]
            if key in now:
                now[key] = names[number]
        elif line.startswith("calls="):
            is_callee = True
        elif line[:1].isdigit() or line.startswith(("+", "-", "*")):
            if not is_callee:
                words = line.split()
                yield Own(now["ob"], now["fn"], words[0], [int(cost) for cost in words[positions:]])
            is_callee = False


def clock_reads(text):
    """Returns the system calls of the functions that read the clock."""
    column = events_of(text).index("sysCount")
    return sum(own.costs[column] for own in own_costs(text) if len(own.costs) > column and CLOCK.fullmatch(own.function))


def atomic_addresses(program):
    """Returns the addresses of a program's atomic instructions that write."""
    done = subprocess.run(["objdump", "--disassemble", "--no-show-raw-insn", program], capture_output=True, text=True, check=True)
    return {int(address, 16) for address in ATOMIC.findall(done.stdout)}


def atomics(text, program, addresses):
    """Returns {(function, address): how often the program's atomic instruction there was executed}. The file must have been
    written with --dump-instr=yes --compress-pos=no."""
    found = collections.Counter()
    for own in own_costs(text):
        if own.object == program and own.costs and int(own.position, 16) in addresses:
            found[own.function, own.position] += own.costs[0]
    return found


def part_of(function):
    """Returns the crate of a function, or what it does if it is not written in Rust."""
    crate = RUST.match(function)
    if crate:
        return crate.group(1)
    return next((part for part, pattern in NOT_RUST if pattern.match(function)), "other")


def by_part(text):
    """Returns {part: instructions}."""
    found = {}
    for own in own_costs(text):
        if own.costs:
            part = part_of(own.function)
            found[part] = found.get(part, 0) + own.costs[0]
    return found
