#!/bin/sh
# A stand-in of a coding agent that performs the lines of a prompt. Tests and the
# demo use it without a model. It shows the requirements of ramus on an agent.
#
#   write FILE TEXT…   writes a line to a file        say TEXT…       prints it
#   append FILE TEXT…  adds one                       run CMD…        runs a shell command
#   remember TEXT…     keeps it in the session        recall          prints what the session holds
#   files              lists what was given along     sleep SECONDS   waits
#   wait FILE          waits until a file is there    fork SECONDS    leaves a process that sleeps
#   babble             prints endlessly               hang            ignores SIGTERM, and hangs
#   die                kills itself                   fail [CODE]     ends with an exit code
#
# All other lines are repeated. The session is in $HOME/.scripted. Like a real agent,
# `scripted.sh --resume` ends with an error if there is none.
set -u
session=${HOME:?}/.scripted/session

case ${1-} in
--resume)
	shift
	[ -f "$session" ] || { echo "scripted: there is no session to resume" >&2; exit 3; }
	;;
*)
	mkdir -p "${session%/*}" && : >"$session" || exit 1
	;;
esac

# The prompt is the last argument, or standard input without one.
if [ $# -gt 0 ]; then
	prompt=$1
else
	prompt=$(cat)
fi
printf 'turn: %s\n' "$(printf '%s\n' "$prompt" | head -n 1)" >>"$session"

printf '%s\n' "$prompt" >"${session%/*}/prompt"
while IFS= read -r line; do
	verb=${line%% *}
	rest=${line#"$verb"}
	rest=${rest# }
	file=${rest%% *}
	text=${rest#"$file"}
	text=${text# }
	case $verb in
	'') ;;
	write) mkdir -p "$(dirname -- "$file")" && printf '%s\n' "$text" >"$file" && echo "wrote $file" ;;
	append) mkdir -p "$(dirname -- "$file")" && printf '%s\n' "$text" >>"$file" && echo "added to $file" ;;
	say) printf '%s\n' "$rest" ;;
	run) sh -c "$rest" </dev/null || echo "it ended with $?" ;;
	remember) printf 'remember: %s\n' "$rest" >>"$session" ;;
	recall) sed -n 's/^remember: //p' "$session" ;;
	files) ls -1 "${RAMUS_FILES:-/nowhere}" 2>/dev/null ;;
	sleep) sleep "$rest" ;;
	wait) while [ ! -e "$file" ]; do sleep 0.05; done ;;
	fork) sleep "$rest" & ;;
	babble) while :; do echo "and so on and on and on and on and on"; done ;;
	hang) trap '' TERM; while :; do sleep 1; done ;;
	die) kill -KILL $$ ;;
	fail) exit "${rest:-1}" ;;
	*) printf 'heard: %s\n' "$line" ;;
	esac
done <"${session%/*}/prompt"
echo done
