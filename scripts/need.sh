# shellcheck shell=bash
# Sourced. Makes sure that the programs that a script calls are installed.
#
#   need cc curl nginx        installs missing programs (Debian, Ubuntu), or lists them and exits
#
# It installs only with apt-get, only as root or with a sudo that needs no password, and starts no service:
# an installed web server must not listen on this machine's port 80.

# Debian installs servers in directories that only root has in PATH.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# Prints the Debian packages of a program.
package_of() {
    case $1 in
        cc) echo "gcc libc6-dev" ;;
        c++) echo "g++" ;;
        nghttp | h2load) echo nghttp2-client ;;
        nghttpd) echo nghttp2-server ;;
        nghttpx) echo nghttp2-proxy ;;
        nginx) echo nginx-light ;;
        go) echo "golang-go ca-certificates" ;;
        node) echo nodejs ;;
        objdump) echo binutils ;;
        python3) echo python3 ;;
        python-h2) echo python3-h2 ;;
        python-yaml) echo python3-yaml ;;
        bpf-headers) echo libbpf-dev ;;
        ip | ss) echo iproute2 ;;
        callgrind_control) echo valgrind ;;
        taskset | nsenter) echo util-linux ;;
        *) echo "$1" ;; # curl, git, h2o, chromium, openssl, cmake: the package has the program's name
    esac
}

is_there() {
    case $1 in
        # The distribution's interpreter, even if PATH has another: the packages are installed for it.
        python3) [ -x /usr/bin/python3 ] ;;
        python-h2) /usr/bin/python3 -c 'import h2' 2>/dev/null ;;
        python-yaml) /usr/bin/python3 -c 'import yaml' 2>/dev/null ;;
        bpf-headers) [ -e /usr/include/bpf/bpf_helpers.h ] ;;
        cc) command -v cc >/dev/null && echo 'int main(void){return 0;}' | cc -x c -o /dev/null - 2>/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

missing_of() {
    local program
    for program in "$@"; do
        is_there "$program" || echo "$program"
    done
}

# invoke-rc.d runs this file before it starts a service; 101 means "forbidden".
POLICY_RC_D=/usr/sbin/policy-rc.d
# A file with this line is ours: a run that was killed leaves one, and the next removes it.
POLICY_MARK='# Written by need.sh of smig while it installs packages'

# apt-get as root, without starting services. A subshell: its traps end with it.
apt_install() (
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    # One at a time: two would remove the file under each other.
    exec 9<"$(dirname "$POLICY_RC_D")"
    flock 9
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    if [ ! -e "$POLICY_RC_D" ] || grep -qxF "$POLICY_MARK" "$POLICY_RC_D"; then
        trap 'rm -f "$log"; "${as_root[@]}" rm -f "$POLICY_RC_D"' EXIT
        printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" | "${as_root[@]}" tee "$POLICY_RC_D" >/dev/null
        "${as_root[@]}" chmod 755 "$POLICY_RC_D"
    fi
    rc=0
    { "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "$@"; } >"$log" 2>&1 9<&- || rc=$?
    [ "$rc" = 0 ] || tail -n 20 "$log" >&2
    exit "$rc"
)

# need_rust [COMPONENT...]: cargo, and components that a minimal toolchain lacks (clippy, rustfmt).
need_rust() {
    if ! command -v cargo >/dev/null && [ -f "${CARGO_HOME:-$HOME/.cargo}/env" ]; then
        # shellcheck disable=SC1091
        . "${CARGO_HOME:-$HOME/.cargo}/env"
    fi
    if ! command -v cargo >/dev/null; then
        echo "error: cargo is missing. Install a Rust toolchain (1.90 or later): https://rustup.rs" >&2
        exit 3
    fi
    local component
    for component in "$@"; do
        cargo "${component#rust}" --version >/dev/null 2>&1 && continue
        if ! { command -v rustup >/dev/null && rustup --quiet component add "$component"; }; then
            echo "error: $component is missing from this Rust toolchain: rustup component add $component" >&2
            exit 3
        fi
    done
}

need() {
    local missing packages
    mapfile -t missing < <(missing_of "$@")
    [ "${#missing[@]}" -gt 0 ] || return 0
    # shellcheck disable=SC2046
    packages=$(printf '%s\n' $(for m in "${missing[@]}"; do package_of "$m"; done) | sort -u | tr '\n' ' ')
    if ! command -v apt-get >/dev/null; then
        echo "error: missing: ${missing[*]}. Install them with this system's package manager" >&2
        echo "       (Debian's packages are: $packages)" >&2
        exit 3
    fi
    if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
        echo "error: missing: ${missing[*]}. Install them, then run this again:" >&2
        echo "       sudo apt-get install --no-install-recommends $packages" >&2
        exit 3
    fi
    echo "installing by apt-get: $packages" >&2
    # shellcheck disable=SC2086
    if ! apt_install $packages; then
        echo "error: apt-get could not install: $packages" >&2
        exit 3
    fi
    mapfile -t missing < <(missing_of "$@")
    if [ "${#missing[@]}" -gt 0 ]; then
        echo "error: still missing after apt-get install $packages: ${missing[*]}" >&2
        exit 3
    fi
}
