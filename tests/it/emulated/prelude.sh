# Functions for scenarios.

ok() { echo "@@ok $1"; }
no() {
    echo "@@no $1: $2"
    tail -n 20 /run/psched.log /run/apinit.log 2>/dev/null
}

# is WHAT ACTUAL EXPECTED
is() { if [ "$2" = "$3" ]; then ok "$1"; else no "$1" "$2, expected $3"; fi; }

# has WHAT FILE WORDS
has() { if grep -qF -- "$3" "$2"; then ok "$1"; else no "$1" "\"$3\" is not in: $(cat "$2")"; fi; }

# eventually SECONDS WHAT COMMAND...: the command succeeds within the bound.
eventually() {
    bound=$(($1 * 10)) what=$2
    shift 2
    while ! "$@" >/dev/null 2>&1; do
        bound=$((bound - 1))
        [ "$bound" -gt 0 ] || { no "$what" "not in time"; return 1; }
        sleep 0.1
    done
}

# The daemons as an administrator starts them, apinit in a group of its own as its unit would have.
# State is in the directory $STATE.
daemons() {
    mkdir -p /run/psched "$STATE"
    chmod 755 /run/psched
    # What these tests see is to depend on no turns.
    unshared='variables: { application.max_resident: 1 }'
    cat >/run/psched.yaml <<END
listening: /run/psched/psched.sock
state: $STATE
nodes:
  - { nids: "0-1", processors: ${PROCESSORS:-2}, memory: 512M, flavors: [ap, os, su] }
${CONFIG:-$unshared}
END
    export PSCHED_SOCKET=/run/psched/psched.sock
    psched --config /run/psched.yaml 2>/run/psched.log &
    psched_pid=$!
    eventually 30 "psched listens" test -S /run/psched/psched.sock
    start_apinit
    eventually 30 "nodes are free" sh -c 'apstat -n | grep -q "0 x86_64 free"'
}

start_apinit() {
    echo "+memory +pids +cpu +cpuset" >/sys/fs/cgroup/cgroup.subtree_control
    mkdir -p /sys/fs/cgroup/apinit
    (
        if ! echo 0 >/sys/fs/cgroup/apinit/cgroup.procs; then
            echo 0 >/sys/fs/cgroup/apinit/psched.daemon/cgroup.procs
        fi 2>/dev/null
        exec apinit --socket /run/psched/psched.sock --nids 0-1 2>/run/apinit.log
    ) &
    apinit_pid=$!
}
