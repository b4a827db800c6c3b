# Shared by the scripts below. They run inside the container, as the task's user,
# in a work tree that any command may have left in any state. Their input comes in
# RAMUS_* variables, never as text of the script.
#
# The start of a program is most of their cost, a millisecond or two. The shell answers
# where it can, and git is asked in the states that are rare.
set -u
umask 022
for v in $(export -p | while IFS='= ' read -r _ v _; do case $v in GIT_*) echo "$v" ;; esac; done); do
	case $v in
	GIT_AUTHOR_NAME | GIT_AUTHOR_EMAIL | GIT_COMMITTER_NAME | GIT_COMMITTER_EMAIL | *[!A-Za-z0-9_]*) ;;
	*) unset "$v" ;;
	esac
done
# Releases of git before 2.32 know a user's configuration by these alone.
export HOME=/nonexistent XDG_CONFIG_HOME=/nonexistent
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=1 LC_ALL=C
ref=refs/heads/$RAMUS_BRANCH
work=${RAMUS_WORK:-/work}
scratch=${RAMUS_SCRATCH:-/cache}
saved=$scratch/.ramus-index
own=

fail() {
	echo "ramus: $2" >&2
	exit "$1"
}

# g is git with the settings that decide how files are read and written.
g() {
	git -c core.hooksPath=/dev/null -c gc.auto=0 -c maintenance.auto=false \
		-c core.fsmonitor=false -c advice.detachedHead=false -c core.quotePath=false \
		-c core.excludesFile=/dev/null -c core.attributesFile=/dev/null -c core.autocrlf=false -c core.safecrlf=false \
		-c protocol.version=0 -c commit.gpgSign=false "$@"
}

# can_sign empties signing if git cannot sign here. Git knows such signatures since 2.34.
can_sign() {
	[ -n "$signing" ] || return
	[ -z "$tried" ] || return 0
	tried=1
	[ -x "$RAMUS_PROGRAM" ] && v=$(git version) && v=${v#git version } && major=${v%%.*} && v=${v#*.} && minor=${v%%[!0-9]*} &&
		{ [ "$major" -gt 2 ] || [ "$minor" -ge 34 ]; } 2>/dev/null || signing=
	[ -n "$signing" ]
}

# s is g for a commit. The host signs it if RAMUS_SIGN is set, to the public key.
s() {
	can_sign || { g "$@"; return; }
	g -c gpg.format=ssh -c "gpg.ssh.program=$RAMUS_PROGRAM" -c "user.signingKey=$RAMUS_SIGN" -c commit.gpgSign=true "$@"
}

# commit_tree makes a commit, without a signature if none can be made: no work is lost for a signature.
commit_tree() {
	can_sign && s commit-tree -S "$@" || g commit-tree "$@"
}

# signs_for_commands has git sign the commits that commands make, and removes the
# settings of a server with another key.
signs_for_commands() {
	can_sign
	[ "$(theirs config --local --get user.signingKey)" != "$signing" ] || return 0
	if [ -n "$signing" ]; then
		theirs config gpg.format ssh && theirs config gpg.ssh.program "$RAMUS_PROGRAM" && theirs config user.signingKey "$signing" && theirs config commit.gpgSign true
	elif [ "$(theirs config --local --get gpg.ssh.program)" = "$RAMUS_PROGRAM" ]; then
		for key in commit.gpgSign user.signingKey gpg.ssh.program gpg.format; do
			theirs config --unset-all $key
		done
	fi
}

# no_pipes removes pipes and sockets from places where git reads a file: it would wait without end.
no_pipes() {
	find . \( -path './.git/*' -o -name .gitignore -o -name .gitattributes -o -name .gitmodules \) \( -type p -o -type s \) -exec rm -f {} + 2>/dev/null
	return 0
}

# own_git makes a git directory of ramus's own for the work tree, and has git use it
# from then on. Its configuration, index, info files and refs are none that a
# command has set. It uses the objects of the container's repository unless they cannot be read or
# written, lack the commit $1, or RAMUS_APART is set; shared is empty then. Otherwise shared is the tree of $1.
own_git() {
	[ -r "$scratch" ] && [ -w "$scratch" ] && [ -x "$scratch" ] || chmod u+rwx "$scratch" 2>/dev/null
	for own in "$scratch"/.ramus-git-*; do
		[ ! -e "$own" ] || rm -rf "$own"
	done
	own=$scratch/.ramus-git-$$
	mkdir -m 700 "$own" 2>/dev/null || own=$(mktemp -d) || fail 90 "cannot make a temporary folder"
	trap 'rm -rf "$own"' EXIT
	mkdir -p "$own/refs/heads" "$own/objects/info" "$own/objects/pack" || fail 90 "cannot make a git directory"
	printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfileMode = true\n\tlogAllRefUpdates = false\n' >"$own/config" &&
		printf 'ref: %s\n' "$ref" >"$own/HEAD" || fail 90 "cannot write a git directory"
	export GIT_DIR="$own" GIT_WORK_TREE="$work"
	shared=
	if [ -z "${RAMUS_APART:-}" ] && [ ! -h .git ] && [ ! -h .git/objects ] && [ -w .git/objects ] && [ -w .git ]; then
		export GIT_OBJECT_DIRECTORY="$work/.git/objects"
		# A history that a command fetched in part is known to be one.
		[ ! -f .git/shallow ] || [ -h .git/shallow ] || cp .git/shallow "$own/shallow"
		shared=$(g rev-parse -q --verify "$1^{tree}" 2>/dev/null) && return
		unset GIT_OBJECT_DIRECTORY
		rm -f "$own/shallow"
	fi
	g fetch -q --no-tags "$RAMUS_REMOTE" "${RAMUS_FETCH:-$ref}" || fail 91 "cannot fetch $RAMUS_BRANCH"
}

# large_files has git replace the contents of files with the attribute filter=lfs by pointers, as git-lfs does. With an
# argument the contents are kept on the server, and a file whose content cannot be kept is not added.
large_files() {
	[ -n "${RAMUS_LFS:-}" ] && [ -x "$RAMUS_PROGRAM" ] || return 0
	if [ $# -gt 0 ]; then
		printf '[filter "lfs"]\n\trequired = true\n\tclean = %s\n' '\"$RAMUS_PROGRAM\" lfs-clean \"$RAMUS_REMOTE\" %f'
	else
		printf '[filter "lfs"]\n\tclean = %s\n' '\"$RAMUS_PROGRAM\" lfs-clean'
	fi >>"$own/config" || fail 90 "cannot write a git directory"
}

# theirs is g in the container's own repository.
theirs() (
	export GIT_DIR="$work/.git" GIT_WORK_TREE="$work"
	unset GIT_OBJECT_DIRECTORY
	g "$@"
)

# read_index fills the index of own_git with the commit $1. What the index knew of the
# files is kept if it is the one that ramus wrote last, by its hash in RAMUS_INDEX,
# or comes on standard input, with RAMUS_SEED.
read_index() {
	if [ -n "${RAMUS_SEED:-}" ]; then
		cat >"$own/index" || fail 90 "cannot keep the index"
	elif [ -n "${RAMUS_INDEX:-}" ] && [ -f "$saved" ] && [ ! -h "$saved" ] && mv "$saved" "$own/index"; then
		[ "$(sha256sum <"$own/index")" = "$RAMUS_INDEX  -" ] || rm -f "$own/index"
	fi
	if [ -s "$own/index" ] && g read-tree -m "$1" 2>/dev/null; then
		return
	fi
	rm -f "$own/index"
	g read-tree "$1" || fail 92 "cannot read the commit $1"
}

# save_index keeps the index for the next script, and prints its hash.
save_index() {
	[ -z "${RAMUS_SEED:-}" ] || return 0
	mv "$own/index" "$saved" 2>/dev/null && sum=$(sha256sum <"$saved" 2>/dev/null) && printf 'index %s\0' "${sum%% *}"
}

# clone_git replaces the container's repository by a new one without a checkout.
clone_git() (
	unset GIT_DIR GIT_WORK_TREE GIT_OBJECT_DIRECTORY
	chmod -R u+rwX .git 2>/dev/null
	# A process of the container may still write there.
	n=0
	until rm -rf .git 2>/dev/null; do
		[ $((n += 1)) -lt 50 ] || rm -rf .git || fail 90 "cannot remove the broken repository"
		sleep 0.1
		chmod -R u+rwX .git 2>/dev/null
	done
	t=$(mktemp -d) || fail 90 "cannot make a temporary folder"
	g clone -q --no-checkout -b "$RAMUS_BRANCH" "$RAMUS_REMOTE" "$t/r" || fail 91 "cannot clone $RAMUS_BRANCH"
	mv "$t/r/.git" .git && rmdir "$t/r" "$t" || fail 90 "cannot place the repository"
)

# is_at reports whether the ref $1 of the container's repository has the hash $2.
is_at() {
	if [ -f ".git/$1" ] && [ ! -h ".git/$1" ]; then
		line=
		{ read -r line <".git/$1"; } 2>/dev/null
		[ "$line" = "$2" ]
	else
		[ "$(theirs rev-parse -q --verify "$1" 2>/dev/null)" = "$2" ]
	fi
}

# is_on_branch reports whether HEAD of the container's repository names the branch.
is_on_branch() {
	[ -f .git/HEAD ] && [ ! -h .git/HEAD ] && { read -r line <.git/HEAD; } 2>/dev/null && [ "$line" = "ref: $ref" ]
}

# point_git has the container's repository be on the branch, at the commit $1, with the
# index of own_git. It writes files where a command's configuration keeps git from it.
point_git() {
	rm -f .git/index.lock .git/HEAD.lock ".git/$ref.lock" .git/packed-refs.lock \
		.git/MERGE_HEAD .git/MERGE_MODE .git/MERGE_MSG .git/SQUASH_MSG .git/AUTO_MERGE .git/CHERRY_PICK_HEAD .git/REVERT_HEAD
	[ ! -d .git/index ] || rm -rf .git/index
	cp -p "$own/index" "$own/copy" && mv -f "$own/copy" .git/index || return 1
	[ -n "$shared" ] || theirs cat-file -e "$1^{tree}" 2>/dev/null || return 1
	origin=refs/remotes/origin/$RAMUS_BRANCH
	if ! is_at "$ref" "$1" &&
		! printf 'update %s %s\n' "$ref" "$1" "$origin" "$1" | theirs update-ref -m "ramus: commit" --stdin 2>/dev/null &&
		! theirs update-ref -m "ramus: commit" "$ref" "$1" 2>/dev/null; then
		mkdir -p ".git/${ref%/*}" && printf '%s\n' "$1" >".git/$ref" || return 1
	fi
	if ! is_on_branch && ! theirs symbolic-ref HEAD "$ref" 2>/dev/null; then
		rm -rf .git/HEAD && printf 'ref: %s\n' "$ref" >.git/HEAD || return 1
	fi
	is_at "$origin" "$1" || theirs update-ref "$origin" "$1" 2>/dev/null
	return 0
}

command -v git >/dev/null 2>&1 || fail 97 "the container's image has no git: install it in the image"
# An additional repository of the caller has its folders from its first script on.
[ -z "${RAMUS_JOIN:-}" ] || mkdir -p "$work" "$scratch" || fail 90 "cannot make $work"
cd "$work" || fail 90 "$work is gone"

signing=${RAMUS_SIGN:-} tried=
