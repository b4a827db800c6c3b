package forge

// Issue is an issue as a delivery has it. All its texts are of strangers.
type Issue struct {
	// Opened means that the issue is new, and Labeled that Label was added to it.
	Opened  bool     `json:"opened,omitempty"`
	Labeled bool     `json:"labeled,omitempty"`
	Title   string   `json:"title"`
	Body    string   `json:"body,omitempty"`
	URL     string   `json:"url,omitempty"`
	Labels  []string `json:"labels,omitempty"`
	Label   string   `json:"label,omitempty"`
	Author  string   `json:"author"`
	// Association is the author's relation to the repository, in the words of GitHub (OWNER, MEMBER, COLLABORATOR,
	// CONTRIBUTOR, NONE …).
	Association string `json:"association,omitempty"`
	Sender      string `json:"sender,omitempty"` // the login of the person whose action it is
}
