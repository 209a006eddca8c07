#!/bin/sh
# Draws docs/turns.svg: two gangs that take turns on four nodes of two processors.
#
# It needs psched's commands in PATH and no privilege. The gangs compute for sixteen seconds, in a
# private instance that ends with this script.
set -eu

docs=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

for program in ocean protein; do
    printf '#!/bin/sh\nwhile :; do :; done\n' > "$program"
    chmod +x "$program"
done

psched start --nodes 4 --processors 2 -- sh -euc '
    aprun -q -n 8 ./ocean &
    sleep 0.2
    aprun -q -n 8 ./protein &
    sleep 16
    psview --svg turns.svg
    apkill 1 2
    wait
'

cp turns.svg "$docs/turns.svg"
