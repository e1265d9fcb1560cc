#!/bin/sh
# Make or update .venv so that it holds acquit (editable) with the named extras, in the versions of constraints.txt, and say
# nothing when it already does.
#
#   tools/environment.sh dev spark
#
# The environment is as old as the hash of pyproject.toml and constraints.txt in its stamp: a change of either installs
# again, anything else costs a few milliseconds. Extras are only ever added, so `make demo` after `make test` installs
# nothing. `spark` brings a Java runtime from the package index where the machine has no Java 17 or newer.
# PYTHON names the interpreter to use; without it the newest Python from 3.11 to 3.13 on the PATH is taken.
set -eu
cd "$(dirname "$0")/.."
venv=.venv
stamp=$venv/.acquit-stamp

say() { printf '%s\n' "acquit: $*" >&2; }

suits() { "$1" -c 'import sys; sys.exit(not sys.version_info >= (3, 11))' >/dev/null 2>&1; }

find_python() {
    # python3 first: it is what its owner chose. Newer than 3.13 only if nothing else is there.
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
        if suits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    say "no Python 3.11 or newer found${PYTHON:+ as $PYTHON}; install one, or name it: make PYTHON=/path/to/python3"
    exit 1
}

has_java() {
    java=java
    if [ -n "${JAVA_HOME:-}" ]; then java=$JAVA_HOME/bin/java; fi
    # 'openjdk version "17.0.15" ...' gives 17; '"1.8.0_392"' gives 1.
    major=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9][0-9]*\).*/\1/p' | head -n 1)
    [ "${major:-0}" -ge 17 ]
}

wanted=$*
case " $wanted " in
*" spark "*) if ! has_java; then wanted="$wanted java"; fi ;;
esac

installed=""
if [ -x "$venv/bin/python" ] && suits "$venv/bin/python"; then
    hash=$("$venv/bin/python" -c '
import hashlib, sys
print(hashlib.sha256(b"".join(open(name, "rb").read() for name in sys.argv[1:])).hexdigest())' \
        pyproject.toml constraints.txt)
    if [ -r "$stamp" ]; then
        read -r stamped installed <"$stamp" || true
        [ "$stamped" = "$hash" ] || stamped=""
    fi
else
    python=$(find_python)
    say "making $venv with $("$python" --version)"
    if ! "$python" -m venv --clear "$venv"; then
        say "$python cannot make a virtual environment; on Debian and Ubuntu install python3-venv"
        exit 1
    fi
    exec "$0" "$@"
fi

missing=""
for extra in $wanted; do
    case " $installed " in
    *" $extra "*) ;;
    *) missing="$missing $extra" ;;
    esac
done
if [ -n "${stamped:-}" ] && [ -z "$missing" ]; then exit 0; fi

all=$(printf '%s\n' $installed $wanted | sort -u | tr '\n' ' ' | sed 's/ $//')
say "installing acquit[$(printf %s "$all" | tr ' ' ',')] into $venv (once; Spark is about 450 MB)"
rm -f "$stamp"
# Every file that pip fetches has a hash in constraints.txt, also what packages are built with: first those that are
# there as wheels, then what is built with them, then acquit itself, which needs nothing more.
install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile "$@"; }
pins() { "$venv/bin/python" tools/pins.py --select $all "$@" >"$venv/pins.txt"; }
pins
install --require-hashes --only-binary :all: --requirement "$venv/pins.txt"
pins --from-source
if [ -s "$venv/pins.txt" ]; then
    install --require-hashes --no-build-isolation --use-pep517 --requirement "$venv/pins.txt"
fi
install --no-build-isolation --editable .
# On all CPUs, as pip does not. What does not compile is no concern of who installs it.
"$venv/bin/python" -m compileall -qq -j 0 "$venv/lib" src || :
printf '%s %s\n' "$hash" "$all" >"$stamp"
