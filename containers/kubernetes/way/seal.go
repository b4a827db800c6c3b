package way

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/runner"
)

// errHardware means that the network may be the machine's.
var errHardware = errors.New("it belongs to hardware, so this network may be the machine's (hostNetwork must be false)")

// Seal deletes every network interface but the loopback. So the network of the pod is gone for all its containers, with
// any network policy or none. It needs CAP_NET_ADMIN. It refuses a network with an interface of hardware.
func Seal() error { return seal("/sys/class/net") }

func seal(class string) error {
	list, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("cannot seal the network: %w", err)
	}
	for _, i := range list {
		if _, err := os.Lstat(filepath.Join(class, i.Name, "device")); err == nil {
			return fmt.Errorf("cannot delete interface %s: %w", i.Name, errHardware)
		}
	}
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot seal the network: %w", err)
	}
	defer unix.Close(s)
	// The kernel answers at once. A silent one must not keep the pod from being given up.
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return fmt.Errorf("cannot seal the network: %w", err)
	}
	for n, i := range list {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		if err := deleteLink(s, uint32(n+1), i.Index); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("cannot delete interface %s: %w", i.Name, err)
		}
	}
	return runner.Sealed()
}

// deleteLink sends RTM_DELLINK and waits for the answer.
func deleteLink(s int, sequence uint32, index int) error {
	m := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint16(m[4:], unix.RTM_DELLINK)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	binary.NativeEndian.PutUint32(m[8:], sequence)
	binary.NativeEndian.PutUint32(m[unix.SizeofNlMsghdr+4:], uint32(index))
	if err := unix.Sendto(s, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 8<<10)
	n, _, err := unix.Recvfrom(s, b, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel's answer cannot be read")
	}
	if e := int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); e != 0 {
		return unix.Errno(-e)
	}
	return nil
}
