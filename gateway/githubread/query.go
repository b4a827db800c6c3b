package githubread

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
)

// Bounds of a query.
const (
	maxQuery  = 64 << 10 // bytes of the request
	maxTokens = 8_000    // of the document
	maxDepth  = 24       // nested selections, with those of fragments
	maxFields = 4_000    // with each use of a fragment
)

// query is the body of a GraphQL request.
type query struct {
	Query         string         `json:"query"`
	OperationName string         `json:"operationName,omitempty"`
	Variables     map[string]any `json:"variables,omitempty"`
}

// fields are the names of fields that a query may have below the repository.
var fields = words(`
	abbreviatedOid additions authoredDate authorAssociation autoMergeRequest baseRefName baseRefOid body bodyText
	changedFiles checkSuite closed closedAt color comments commit commits commitUrl committedDate completedAt conclusion
	content context contexts createdAt defaultBranchRef deletions description detailsUrl diffHunk dueOn edges endCursor event
	files forkCount hasIssuesEnabled hasNextPage hasPreviousPage headRefName headRefOid homepageUrl id includesCreatedEdit
	isArchived isCrossRepository isDraft isEmpty isFork isLatest isMinimized isPinned isPrerelease isPrivate isRequired
	isResolved issue issueOrPullRequest issues labels languages lastEditedAt latestRelease latestReviews licenseInfo line
	maintainerCanModify mergeCommit mergeStateStatus mergeable mergedAt message messageBody messageHeadline milestone
	milestones minimizedReason name nameWithOwner nickname node nodes number oid originalLine pageInfo path position
	prefix primaryLanguage project projectCards column publishedAt pullRequest pullRequests pushedAt reactionGroups ref refs releases resourcePath
	reviewDecision reviewRequests reviewThreads reviews stargazerCount startedAt startCursor state stateReason status
	statusCheckRollup submittedAt tagName target targetUrl title totalCount updatedAt url viewerDidAuthor visibility
	workflow workflowRun runNumber createdBy`)

// leading are the names of fields that lead to people and to other repositories. Below them a query may have only the
// fields of named.
var leading = words(`
	assignees author authors baseRepository committer creator enabledBy headRepository headRepositoryOwner
	login mergedBy organization owner parent participants repository requestedReviewer user users`)

// named are the names of fields that name a person or a repository.
var named = words(`
	edges email endCursor hasNextPage id isFork login name nameWithOwner node nodes organization owner pageInfo slug
	totalCount url user`)

func words(text string) map[string]bool {
	set := make(map[string]bool)
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

// allowQuery returns an error if a GraphQL request is anything but a query of the repository.
func allowQuery(body []byte, repo forge.Name) error {
	var q query
	if err := json.Unmarshal(body, &q); err != nil {
		return fmt.Errorf("the request is no JSON: %w", err)
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: q.Query}, maxTokens)
	if err != nil {
		return fmt.Errorf("the request is no GraphQL: %w", err)
	}
	if len(doc.Operations) == 0 {
		return fmt.Errorf("the request has no operation")
	}
	c := &checker{repo: repo, doc: doc, variables: q.Variables}
	for _, op := range doc.Operations {
		if op.Operation != ast.Query {
			return fmt.Errorf("a %s is not allowed, only a query", op.Operation)
		}
		c.defaults = op.VariableDefinitions
		if err := c.checkRoot(op.SelectionSet, 1); err != nil {
			return err
		}
	}
	return nil
}

// checker checks the selections of a document.
type checker struct {
	repo      forge.Name
	doc       *ast.QueryDocument
	variables map[string]any
	defaults  ast.VariableDefinitionList
	seen      int // fields
}

// each calls do for each field of a selection, with those of its fragments.
func (c *checker) each(set ast.SelectionSet, depth int, do func(*ast.Field) error) error {
	if len(set) > 0 && depth > maxDepth {
		return fmt.Errorf("the query is nested deeper than %d", maxDepth)
	}
	for _, s := range set {
		if c.seen++; c.seen > maxFields {
			return fmt.Errorf("the query has more than %d fields", maxFields)
		}
		var err error
		switch s := s.(type) {
		case *ast.Field:
			if s.Name != "__typename" {
				err = do(s)
			}
		case *ast.InlineFragment:
			err = c.each(s.SelectionSet, depth+1, do)
		case *ast.FragmentSpread:
			f := c.doc.Fragments.ForName(s.Name)
			if f == nil {
				return fmt.Errorf("there is no fragment %q", s.Name)
			}
			err = c.each(f.SelectionSet, depth+1, do)
		default:
			err = fmt.Errorf("a selection of type %T", s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRoot checks the fields of an operation.
func (c *checker) checkRoot(set ast.SelectionSet, depth int) error {
	return c.each(set, depth, func(f *ast.Field) error {
		switch f.Name {
		case "repository":
			if !c.repo.Is(forge.Name{Owner: c.text(f, "owner"), Repo: c.text(f, "name")}) {
				return fmt.Errorf("only the repository %s is readable", c.repo)
			}
			return c.check(f.SelectionSet, depth+1)
		case "viewer":
			return c.checkNames(f.SelectionSet, depth+1)
		case "__type", "__schema", "rateLimit": // not about any repository
			return nil
		}
		return fmt.Errorf("the field %q is not allowed", f.Name)
	})
}

// check checks the fields below the repository.
func (c *checker) check(set ast.SelectionSet, depth int) error {
	return c.each(set, depth, func(f *ast.Field) error {
		switch {
		case leading[f.Name]:
			return c.checkNames(f.SelectionSet, depth+1)
		case fields[f.Name]:
			return c.check(f.SelectionSet, depth+1)
		}
		return fmt.Errorf("the field %q is not allowed", f.Name)
	})
}

// checkNames checks the fields below a person or another repository.
func (c *checker) checkNames(set ast.SelectionSet, depth int) error {
	return c.each(set, depth, func(f *ast.Field) error {
		if !named[f.Name] {
			return fmt.Errorf("the field %q of a person or of another repository is not allowed", f.Name)
		}
		return c.checkNames(f.SelectionSet, depth+1)
	})
}

// text returns the value of an argument that is a text or a variable with one, and otherwise "".
func (c *checker) text(f *ast.Field, argument string) string {
	a := f.Arguments.ForName(argument)
	if a == nil || a.Value == nil {
		return ""
	}
	v := a.Value
	if v.Kind == ast.Variable {
		if value, ok := c.variables[v.Raw]; ok {
			text, _ := value.(string)
			return text
		}
		d := c.defaults.ForName(v.Raw)
		if d == nil || d.DefaultValue == nil {
			return ""
		}
		v = d.DefaultValue
	}
	if v.Kind != ast.StringValue && v.Kind != ast.BlockValue {
		return ""
	}
	return v.Raw
}
