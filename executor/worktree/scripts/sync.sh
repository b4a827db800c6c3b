# Brings the work tree to the branch's tip on the server, RAMUS_TIP, before a command.
# Changes that were not committed are removed: an interrupted command did not happen.
# RAMUS_KNOWN is the commit that the work tree was at last, if it is known.
no_pipes
if [ -n "${RAMUS_JOIN:-}" ] && { [ -h .git ] || [ ! -d .git ]; }; then
	clone_git || exit
	theirs config user.name "$GIT_AUTHOR_NAME" && theirs config user.email "$GIT_AUTHOR_EMAIL" || fail 90 "cannot set the identity"
fi
if [ -h .git ] || [ ! -d .git ] || ! theirs rev-parse -q --verify HEAD >/dev/null 2>&1; then
	clone_git || exit
fi
rm -rf .git/index.lock .git/HEAD.lock .git/rebase-merge .git/rebase-apply .git/MERGE_HEAD .git/CHERRY_PICK_HEAD .git/REVERT_HEAD
if ! theirs fetch -q "$RAMUS_REMOTE" "+$ref:refs/remotes/origin/$RAMUS_BRANCH"; then
	clone_git || exit
fi
own_git "$RAMUS_TIP"
if [ -z "$shared" ]; then
	clone_git || exit
	own_git "$RAMUS_TIP"
fi
large_files
signs_for_commands 2>/dev/null
from=$RAMUS_TIP
[ -z "${RAMUS_KNOWN:-}" ] || ! g cat-file -e "$RAMUS_KNOWN^{tree}" 2>/dev/null || from=$RAMUS_KNOWN
read_index "$from"
g update-index -q --refresh >/dev/null
g update-ref "$ref" "$RAMUS_TIP" && g reset -q --hard "$RAMUS_TIP" || fail 92 "cannot check out $RAMUS_BRANCH"
g clean -fdq || fail 92 "cannot clean the work tree"
point_git "$RAMUS_TIP" || fail 92 "cannot set the container's repository to $RAMUS_BRANCH"
save_index
printf 'tip %s\0' "$RAMUS_TIP"
