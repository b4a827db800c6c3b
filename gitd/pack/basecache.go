package pack

import (
	"container/list"
	"github.com/ramus-dev/ramus/gitd/object"
	"sync"
)

// baseCache keeps the most recently used objects that are bases of deltas.
type baseCache struct {
	mu    sync.Mutex // guards all fields
	items map[baseKey]*list.Element
	order list.List
	bytes int64
}

// baseKey is the place of an object.
type baseKey struct {
	pack *File
	at   int64
}

// baseItem is an element of baseCache.order.
type baseItem struct {
	key baseKey
	obj object.Object
}

func (c *baseCache) get(pack *File, at int64) (object.Object, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[baseKey{pack, at}]
	if !ok {
		return object.Object{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*baseItem).obj, true
}

func (c *baseCache) put(pack *File, at int64, obj object.Object) {
	key := baseKey{pack, at}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items[key] != nil || len(obj.Data) > baseCacheBytes/4 {
		return
	}
	if c.items == nil {
		c.items = map[baseKey]*list.Element{}
	}
	c.items[key] = c.order.PushFront(&baseItem{key, obj})
	for c.bytes += int64(len(obj.Data)); c.bytes > baseCacheBytes; {
		last := c.order.Remove(c.order.Back()).(*baseItem)
		delete(c.items, last.key)
		c.bytes -= int64(len(last.obj.Data))
	}
}

// drop removes the objects of a pack, which would keep its index in memory.
func (c *baseCache) drop(pack *File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.items {
		if key.pack == pack {
			c.bytes -= int64(len(e.Value.(*baseItem).obj.Data))
			c.order.Remove(e)
			delete(c.items, key)
		}
	}
}

func (c *baseCache) empty() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.items)
	c.order.Init()
	c.bytes = 0
}
