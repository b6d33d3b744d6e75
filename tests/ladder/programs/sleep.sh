# sleep.sh NAME: says in the file NAME that it is there, and becomes one process that does not follow TERM.
trap "" TERM
echo $$ > ".$1" && mv ".$1" "$1"
exec sleep 100000
