# The reaper: it knows by notes on its input which process groups live, "+ID" and
# "-ID", and when the input ends, which is when the parent is gone, it kills those that
# are left. Whoever ends a whole session or group of processes must not end it before
# its work is done.
trap '' INT TERM HUP QUIT PIPE
echo ready
live=' '
while read -r note; do
	group=${note#?}
	# 0 and 1 would mean "my own group" and "everyone" to kill(2).
	case $group in '' | 0 | 1 | *[!0-9]*) continue ;; esac
	case $note in
	+*) live="$live$group " ;;
	-*) case $live in *" $group "*) live="${live%% "$group" *} ${live#* "$group" }" ;; esac ;;
	esac
done
for group in $live; do
	kill -s KILL -- "-$group"
done 2>/dev/null
exit 0
