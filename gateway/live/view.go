package live

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"
)

// Fragment is an element of a page. Its HTML is one element with the attributes data-key and data-hash.
type Fragment struct {
	Key  string
	In   string // the list that holds it, an element with the attribute data-live
	Hash string
	HTML string
}

// View is the present content of a page.
type View struct {
	Title string
	// Topics wake the view.
	Topics []string
	// Beat is how often the view is made again without a change. Zero means never.
	Beat time.Duration
	// Fragments are in the order of the page.
	Fragments []Fragment
}

// keys returns the keys of the fragments, in their order.
func (v View) keys() []string {
	list := make([]string, len(v.Fragments))
	for i, f := range v.Fragments {
		list[i] = f.Key
	}
	return list
}

// shown is the fragments that a page shows.
type shown struct {
	keys   []string // in the order of the page
	hashes map[string]string
}

// UnmarshalJSON takes an object of hashes by key, whose order is that of the page.
func (s *shown) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &s.hashes); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	s.keys = nil
	for {
		t, err := d.Token() // a brace, or a key
		if err != nil {
			return nil // the end of the text
		}
		key, ok := t.(string)
		if !ok {
			continue
		}
		s.keys = append(s.keys, key)
		if _, err := d.Token(); err != nil { // its hash
			return err
		}
	}
}

// Hash returns the hash of a fragment, for data-hash.
func Hash(html string) string {
	sum := sha256.Sum256([]byte(html))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// Op changes one element of a page.
type Op struct {
	// Op is "put" (replace the element, or insert it into In before the element Before, or at the end), "drop", "order" (put the
	// elements of In into the order of Keys) or "title".
	Op     string   `json:"op"`
	Key    string   `json:"key,omitempty"`
	In     string   `json:"in,omitempty"`
	Before string   `json:"before,omitempty"`
	HTML   string   `json:"html,omitempty"`
	Keys   []string `json:"keys,omitempty"`
}

// reordered returns the ops that put the lists of a page into the order of its view, where elements have changed places. before has
// the keys of the page in its order.
func reordered(before []string, now View) (ops []Op) {
	places := make(map[string]int, len(before))
	for i, key := range before {
		places[key] = i
	}
	last, keys, moved := map[string]int{}, map[string][]string{}, map[string]bool{}
	var lists []string
	for _, f := range now.Fragments {
		if keys[f.In] == nil {
			lists = append(lists, f.In)
		}
		keys[f.In] = append(keys[f.In], f.Key)
		if at, ok := places[f.Key]; ok {
			moved[f.In] = moved[f.In] || at < last[f.In]
			last[f.In] = at
		}
	}
	for _, in := range lists {
		if moved[in] {
			ops = append(ops, Op{Op: "order", In: in, Keys: keys[in]})
		}
	}
	return ops
}

// difference returns the ops that make a page with the fragments of have one of the view, and changes have to the view's. have is by key.
func difference(have map[string]string, v View) []Op {
	var ops []Op
	shown := make(map[string]bool, len(v.Fragments))
	for i, f := range v.Fragments {
		shown[f.Key] = true
		hash, old := have[f.Key]
		if old && hash == f.Hash {
			continue
		}
		op := Op{Op: "put", Key: f.Key, HTML: f.HTML}
		if !old {
			op.In, op.Before = f.In, follower(have, v.Fragments[i+1:], f.In)
		}
		ops = append(ops, op)
		have[f.Key] = f.Hash
	}
	for key := range have {
		if !shown[key] {
			ops = append(ops, Op{Op: "drop", Key: key})
			delete(have, key)
		}
	}
	return ops
}

// follower returns the key of the first of the fragments that is in the list in and that the page has, or "".
func follower(have map[string]string, after []Fragment, in string) string {
	for _, f := range after {
		if _, ok := have[f.Key]; ok && f.In == in {
			return f.Key
		}
	}
	return ""
}
