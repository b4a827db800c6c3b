# Brings the work tree to the branch's tip on the server before a command, and
# throws away what an interrupted command left: it did not happen.
if ! g rev-parse -q --verify HEAD >/dev/null 2>&1 || ! g cat-file -e "HEAD^{tree}" 2>/dev/null; then
	rm -rf .git
	t=$(mktemp -d) || fail 90 "cannot make a temporary folder"
	g clone -q --no-checkout -b "$RAMUS_BRANCH" "$RAMUS_REMOTE" "$t/r" || fail 91 "cannot clone $RAMUS_BRANCH"
	mv "$t/r/.git" .git && rmdir "$t/r" "$t" || fail 90 "cannot place the repository"
fi
signs_for_commands
rm -rf .git/index.lock .git/HEAD.lock .git/rebase-merge .git/rebase-apply .git/MERGE_HEAD .git/CHERRY_PICK_HEAD .git/REVERT_HEAD
g fetch -q "$RAMUS_REMOTE" "+$ref:refs/remotes/origin/$RAMUS_BRANCH" || fail 91 "cannot fetch $RAMUS_BRANCH"
g symbolic-ref HEAD "$ref" && g update-ref "$ref" "$RAMUS_TIP" || fail 92 "cannot stand on $RAMUS_BRANCH"
g reset -q --hard "$RAMUS_TIP" || fail 92 "cannot check out $RAMUS_BRANCH"
g clean -fdq || fail 92 "cannot clean the work tree"
g rev-parse "$ref"
