# hop.sh [CGROUP]: moves itself to the cgroup if one is given, then forks and exits without end, under a new number each
# time. Each life leaves a byte in the file `beat` and naps for a millisecond, which is less than a look at /proc takes. It ends
# after 20000 lives: where nothing catches it, it must not fill the host.
trap "" TERM
[ -z "$1" ] || echo $$ > "$1/cgroup.procs" || exit 9
command -v perl > /dev/null && exec perl -e 'open(F, ">>", "beat"); while ($n++ < 20000) { syswrite(F, "."); select(undef, undef, undef, 0.001); exit if fork; }'
exec python3 -c 'import os, time
beat = os.open("beat", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
for _ in range(20000):
    os.write(beat, b".")
    time.sleep(0.001)
    if os.fork():
        os._exit(0)'
