# Fills the empty work tree from the caller's branch, or from an earlier commit of it.
if [ -e .git ]; then
	rm -rf .git
fi
t=$(mktemp -d) || fail 90 "cannot make a temporary folder"
g clone -q --no-checkout -b "$RAMUS_BRANCH" "$RAMUS_REMOTE" "$t/r" || fail 91 "cannot clone $RAMUS_BRANCH"
mv "$t/r/.git" .git && rmdir "$t/r" "$t" || fail 90 "cannot place the repository"
g reset -q --hard "${RAMUS_AT:-$ref}" || fail 91 "cannot check out $RAMUS_BRANCH"
g config user.name "$GIT_AUTHOR_NAME" && g config user.email "$GIT_AUTHOR_EMAIL" || fail 90 "cannot set the identity"
signs_for_commands
g rev-parse "$ref"
