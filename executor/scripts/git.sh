# Shared by the scripts below: they run inside the container, as the task's
# user, in a work tree that any command may have left in any state. What they
# need comes in RAMUS_* variables, never as text of the script.
set -u
umask 022
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=1 LC_ALL=C
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE
ref=refs/heads/$RAMUS_BRANCH
work=${RAMUS_WORK:-/work}

fail() {
	echo "ramus: $2" >&2
	exit "$1"
}

g() {
	git -c core.hooksPath=/dev/null -c commit.gpgSign=false -c gc.auto=0 -c maintenance.auto=false \
		-c core.fsmonitor=false -c advice.detachedHead=false -c core.quotePath=false \
		-c protocol.version=0 "$@"
}

command -v git >/dev/null 2>&1 || fail 97 "the container's image has no git: install it in the image"
cd "$work" || fail 90 "$work is gone"
