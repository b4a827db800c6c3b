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
	git -c core.hooksPath=/dev/null -c gc.auto=0 -c maintenance.auto=false \
		-c core.fsmonitor=false -c advice.detachedHead=false -c core.quotePath=false \
		-c protocol.version=0 -c commit.gpgSign=false "$@"
}

# s is g for what makes a commit: the host signs it, where RAMUS_SIGN is its public key.
s() {
	[ -n "$signing" ] || { g "$@"; return; }
	g -c gpg.format=ssh -c "gpg.ssh.program=$RAMUS_PROGRAM" -c "user.signingKey=$RAMUS_SIGN" -c commit.gpgSign=true "$@"
}

# c is s, and what cannot be signed is made without: no work is lost for want of a signature.
c() {
	s "$@" || { [ -n "$signing" ] && g "$@"; }
}

# commit_tree is c for git commit-tree, which signs only when it is told to.
commit_tree() {
	[ -n "$signing" ] && s commit-tree -S "$@" || g commit-tree "$@"
}

# signs_for_commands has commits signed that a command makes itself, and takes back what
# a server with another key has set.
signs_for_commands() {
	[ "$(g config --local --get user.signingKey)" != "$signing" ] || return 0
	if [ -n "$signing" ]; then
		g config gpg.format ssh && g config gpg.ssh.program "$RAMUS_PROGRAM" && g config user.signingKey "$signing" && g config commit.gpgSign true
	elif [ "$(g config --local --get gpg.ssh.program)" = "$RAMUS_PROGRAM" ]; then
		for key in commit.gpgSign user.signingKey gpg.ssh.program gpg.format; do
			g config --unset-all $key
		done
	fi
}

command -v git >/dev/null 2>&1 || fail 97 "the container's image has no git: install it in the image"
cd "$work" || fail 90 "$work is gone"

signing=${RAMUS_SIGN:-}
if [ -n "$signing" ]; then
	# Git knows such signatures since 2.34.
	v=$(git version) && v=${v#git version } && major=${v%%.*} && v=${v#*.} && minor=${v%%[!0-9]*}
	[ -x "$RAMUS_PROGRAM" ] && { [ "$major" -gt 2 ] || [ "$minor" -ge 34 ]; } 2>/dev/null || signing=
fi
