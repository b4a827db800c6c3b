package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/replica"
	"github.com/ramus-dev/ramus/gitd"
)

// membership is this server's place among several.
type membership struct {
	group  *ownership.Cluster
	front  *replica.Front
	inner  net.Listener // of the inner address; front serves it
	client *kube.Client
	ended  chan error // gets the error of a lease that was lost
}

// lost returns the channel with the error of a lease that was lost. It is nil for the only server.
func (r *membership) lost() <-chan error {
	if r == nil {
		return nil
	}
	return r.ended
}

// close gives the lease back.
func (r *membership) close(ctx context.Context) error {
	if r == nil {
		return nil
	}
	r.front.Close()
	err := errors.Join(r.group.Close(context.WithoutCancel(ctx)))
	r.inner.Close() // closed by its server, if it had one
	r.client.Close()
	return err
}

// joinReplicas waits until this process holds the lease of its replica. Nothing of the data folder is used before.
func (o *opening) joinReplicas(ctx context.Context) error {
	c := o.config.Replicas
	if c.Name == "" {
		return nil
	}
	secret, err := o.secret.value("replicas.secret", c.SecretEnv, c.SecretFile)
	if err != nil {
		return err
	}
	cluster, err := newCluster(o.config.Kubernetes)
	if err != nil {
		return fmt.Errorf("cannot find the cluster with the leases of replicas: %w", err)
	}
	namespace := cmp.Or(c.Namespace, cluster.Namespace)
	if namespace == "" {
		return errors.New("cannot be a replica: replicas.namespace is empty, and the kubeconfig names none")
	}
	r := &membership{ended: make(chan error, 1)}
	if r.client, err = kube.New(*cluster); err != nil {
		return err
	}
	if r.inner, err = net.Listen("tcp", c.Listen); err != nil {
		r.client.Close()
		return fmt.Errorf("cannot listen at the address of replicas.listen: %w", err)
	}
	r.group = &ownership.Cluster{Client: r.client, Namespace: namespace, Group: c.Group, Name: c.Name,
		URL: cmp.Or(strings.TrimSuffix(c.URL, "/"), innerURL(r.inner.Addr())), Data: o.config.Data,
		Shared: []string{gitd.PeopleRepo, lookup.InboxRepo}, Process: processOf(o.lock),
		Duration: time.Duration(c.Lease), Lost: func(err error) { r.ended <- err }, Log: o.log}
	r.front = &replica.Front{Group: r.group, Home: cmp.Or(c.Home, c.Group+"-0"), Keys: o.keys, Secret: []byte(secret),
		Log: o.log}
	if err := r.front.Open(); err != nil {
		r.client.Close()
		return errors.Join(err, r.inner.Close())
	}
	o.replicas = r
	if err := r.group.Open(ctx); err != nil {
		return err
	}
	if err := o.restoreVolume(ctx); err != nil {
		return err
	}
	return r.front.FetchKeys(ctx, o.keys)
}

// innerURL returns the URL of a listener. For all addresses of the machine it has the machine's name.
func innerURL(addr net.Addr) string {
	host, port, _ := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = hostName()
	}
	return "https://" + net.JoinHostPort(host, port)
}

// processOf names the kernel of this machine and the lock of a data folder. Returns "" if either is not known.
func processOf(lock *os.File) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || lock == nil {
		return ""
	}
	info, err := lock.Stat()
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", strings.TrimSpace(string(boot)), st.Dev, st.Ino)
}

// compareRepositories has the Git server ask who owns a repository. It puts copies of repositories aside that another
// replica owns.
func (o *opening) compareRepositories(ctx context.Context) error {
	if o.replicas == nil {
		return nil
	}
	group, duty, settle := o.replicas.group, o.git.Duty, o.git.Settle
	o.git.Duty = func(ctx context.Context, repo string) error {
		if err := group.Check(ctx, repo); err != nil {
			return err
		}
		return duty(ctx, repo)
	}
	o.git.Settle = func(ctx context.Context, repo string) error {
		if err := settle(ctx, repo); err != nil {
			return err
		}
		err := group.Check(ctx, repo)
		if err == nil {
			group.Note(repo)
		}
		return err
	}
	o.replicas.front.Git = o.git
	o.git.Claim, o.git.Dropped = o.claimNew(group.Claim), group.Drop
	repos, err := o.git.Repos(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, r := range repos {
		names = append(names, r.Name())
	}
	moved, missing, err := group.Settle(ctx, names)
	if err != nil {
		return err
	}
	for _, name := range moved {
		if err := o.putAside(name); err != nil {
			return err
		}
	}
	o.missing = missing
	return o.nameLosses(missing)
}

// putAside moves the copy of a repository out of the way that another replica owns. A process was killed while it gave
// the repository away, or the folder is an old copy.
func (o *opening) putAside(name string) error {
	from := filepath.Join(o.config.Data, "repos", filepath.FromSlash(name)+".git")
	to, err := replica.Aside(o.config.Data, name)
	if err == nil {
		err = os.Rename(from, to)
	}
	if err != nil {
		return fmt.Errorf("cannot put the copy of %s aside, which another replica owns: %w", name, err)
	}
	o.log.Warn("another replica owns a repository of this data folder; its copy here was put aside", "repo", name, "at", to)
	return nil
}

// connectReplicas has the gateway pass requests on.
func (o *opening) connectReplicas() {
	if o.replicas == nil {
		return
	}
	f := o.replicas.front
	o.git.Known, o.git.PassSSH, o.gateway.Replicas = f.Known, f.PassSSH, f
}

// installMoved takes repositories into use that were moved here while this replica did not run, and names those that are
// missing.
func (o *opening) installMoved(ctx context.Context) error {
	if o.replicas == nil {
		return nil
	}
	f := o.replicas.front
	f.Executor, f.Git = o.executor, o.git
	if err := f.Install(ctx); err != nil {
		return err
	}
	for _, name := range o.missing {
		if _, err := o.git.Repo(name); err == nil {
			continue
		}
		o.log.Error("this replica owns a repository that its data folder does not have", "repo", name,
			"hint", "an empty data folder is restored from replicas.backups; `ramus repo rm` gives the name up")
	}
	return nil
}
