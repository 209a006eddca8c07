# The whole path on the oldest kernel.
. /prelude.sh
STATE=/run/state
daemons
is "the kernel is the oldest" "$(uname -r | cut -d. -f1-2)" 6.1
aprun -n 2 sh -c 'echo hello $PMI_RANK' >/tmp/out 2>/tmp/err
is "root's program" "$?" 0
cat /tmp/out /tmp/err
su alice -c 'aprun -n 2 id -u' >/tmp/out 2>/tmp/err
is "a user's program" "$?" 0
cat /tmp/out /tmp/err
echo @@end
