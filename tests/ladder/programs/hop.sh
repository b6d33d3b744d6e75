# hop.sh [CGROUP]: moves itself to the cgroup if one is given, then forks and exits without a pause, under a new number each
# time. Each life leaves a byte in the file `beat`.
trap "" TERM
[ -z "$1" ] || echo $$ > "$1/cgroup.procs" || exit 9
command -v perl > /dev/null && exec perl -e 'open(F, ">>", "beat"); while (1) { syswrite(F, "."); exit if fork; }'
exec python3 -c 'import os
beat = os.open("beat", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
while True:
    os.write(beat, b".")
    if os.fork():
        os._exit(0)'
