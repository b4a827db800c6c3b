package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi-cloudflare/sdk/v5/go/cloudflare"
	"github.com/pulumi/pulumi-hcloud/sdk/go/hcloud"
	"github.com/pulumi/pulumi-random/sdk/v4/go/random"
	"github.com/pulumi/pulumi-tls/sdk/v5/go/tls"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"
)

// settings are those of a stack.
type settings struct {
	domain, zone, account string
	sshKeys, admins       []string
	location, serverType  string
	disk                  int // GB
}

// read returns the settings of a stack. All mistakes are one error.
func read(ctx *pulumi.Context) (settings, error) {
	c := config.New(ctx, "")
	s := settings{domain: c.Get("domain"), zone: c.Get("zoneId"), account: c.Get("accountId"), location: c.Get("location"),
		serverType: c.Get("serverType"), disk: c.GetInt("diskSize")}
	var errs []error
	for _, key := range []string{"domain", "zoneId", "accountId", "location", "serverType"} {
		if c.Get(key) == "" {
			errs = append(errs, fmt.Errorf("%s is missing: pulumi config set %s VALUE", key, key))
		}
	}
	if s.disk < 10 || s.disk > 10240 {
		errs = append(errs, fmt.Errorf("diskSize is %d, want 10 to 10240 GB", s.disk))
	}
	if strings.Contains(s.domain, "://") || s.domain != "" && !strings.Contains(s.domain, ".") {
		errs = append(errs, fmt.Errorf("domain is %q, want a name such as ramus.example.org", s.domain))
	}
	c.GetObject("sshKeys", &s.sshKeys)
	c.GetObject("admins", &s.admins)
	if len(s.sshKeys) == 0 {
		errs = append(errs, errors.New("sshKeys is empty: nobody could deploy (pulumi config set --path sshKeys[0] NAME)"))
	}
	for _, r := range s.admins {
		if _, err := netip.ParsePrefix(r); err != nil {
			errs = append(errs, fmt.Errorf("admins: %w", err))
		}
	}
	return s, errors.Join(errs...)
}

// deploy describes the stack and its outputs.
func deploy(ctx *pulumi.Context) error {
	out, err := describe(ctx)
	for name, value := range out {
		ctx.Export(name, value)
	}
	return err
}

// describe describes the stack. Returns its outputs.
func describe(ctx *pulumi.Context) (out pulumi.Map, err error) {
	s, err := read(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot deploy: %w", err)
	}
	out = pulumi.Map{"url": pulumi.String("https://app." + s.domain)}
	if err := keys(ctx, out); err != nil {
		return nil, err
	}
	machine, err := server(ctx, s, out)
	if err != nil {
		return nil, err
	}
	if err := bucket(ctx, s, out); err != nil {
		return nil, err
	}
	return out, names(ctx, s, machine)
}

// keys makes the key of seals, which has 256 bits, and that of commits.
func keys(ctx *pulumi.Context, out pulumi.Map) error {
	seal, err := random.NewRandomBytes(ctx, "seal-key", &random.RandomBytesArgs{Length: pulumi.Int(32)}, pulumi.Protect(true),
		pulumi.AdditionalSecretOutputs([]string{"base64", "hex"}))
	if err != nil {
		return err
	}
	sign, err := tls.NewPrivateKey(ctx, "commit-key", &tls.PrivateKeyArgs{Algorithm: pulumi.String("ED25519")}, pulumi.Protect(true),
		pulumi.AdditionalSecretOutputs([]string{"privateKeyOpenssh", "privateKeyPem", "privateKeyPemPkcs8"}))
	if err != nil {
		return err
	}
	out["sealKey"] = pulumi.ToSecret(seal.Base64)
	out["commitKey"] = pulumi.ToSecret(sign.PrivateKeyOpenssh)
	out["commitPublicKey"] = sign.PublicKeyOpenssh
	return nil
}

// server makes the network, the firewall, the machine and its disk.
func server(ctx *pulumi.Context, s settings, out pulumi.Map) (*hcloud.Server, error) {
	network, err := hcloud.NewNetwork(ctx, "network", &hcloud.NetworkArgs{IpRange: pulumi.String("10.60.0.0/16")})
	if err != nil {
		return nil, err
	}
	subnet, err := hcloud.NewNetworkSubnet(ctx, "subnet", &hcloud.NetworkSubnetArgs{NetworkId: number(network.ID()),
		Type: pulumi.String("cloud"), NetworkZone: pulumi.String("eu-central"), IpRange: pulumi.String("10.60.1.0/24")})
	if err != nil {
		return nil, err
	}
	firewall, err := hcloud.NewFirewall(ctx, "firewall", &hcloud.FirewallArgs{Rules: rules(s.admins)})
	if err != nil {
		return nil, err
	}
	disk, err := hcloud.NewVolume(ctx, "data", &hcloud.VolumeArgs{Size: pulumi.Int(s.disk), Format: pulumi.String("ext4"),
		Location: pulumi.String(s.location), DeleteProtection: pulumi.Bool(true)}, pulumi.Protect(true))
	if err != nil {
		return nil, err
	}
	machine, err := hcloud.NewServer(ctx, "server", &hcloud.ServerArgs{Image: pulumi.String("debian-13"),
		ServerType: pulumi.String(s.serverType), Location: pulumi.String(s.location),
		SshKeys: pulumi.ToStringArray(s.sshKeys), FirewallIds: pulumi.IntArray{number(firewall.ID())},
		Networks: hcloud.ServerNetworkTypeArray{hcloud.ServerNetworkTypeArgs{NetworkId: number(network.ID()),
			Ip: pulumi.String("10.60.1.2")}},
		Backups: pulumi.Bool(true), UserData: disk.LinuxDevice.ApplyT(description).(pulumi.StringOutput)},
		// Another description does not make another machine.
		pulumi.DependsOn([]pulumi.Resource{subnet}), pulumi.IgnoreChanges([]string{"userData"}))
	if err != nil {
		return nil, err
	}
	_, err = hcloud.NewVolumeAttachment(ctx, "data-attachment", &hcloud.VolumeAttachmentArgs{VolumeId: number(disk.ID()),
		ServerId: number(machine.ID()), Automount: pulumi.Bool(false)})
	out["address"] = machine.Ipv4Address
	out["disk"] = disk.LinuxDevice
	return machine, err
}

// description is for cloud-init. It mounts the disk at the data folder, at the first access, because the disk is attached when
// the machine is there. It has no key. The pipeline installs ramus.
func description(device string) string {
	return `#cloud-config
package_update: true
package_upgrade: true
packages: [ca-certificates, git, curl, docker.io, unattended-upgrades]
ssh_pwauth: false
write_files:
  - path: /etc/systemd/system/var-lib-ramus.mount
    content: |
      [Unit]
      Description=The disk of the data folder of ramus
      [Mount]
      What=` + device + `
      Where=/var/lib/ramus
      Type=ext4
  - path: /etc/systemd/system/var-lib-ramus.automount
    content: |
      [Unit]
      Description=The disk of the data folder of ramus
      [Automount]
      Where=/var/lib/ramus
      [Install]
      WantedBy=multi-user.target
runcmd:
  - [mkdir, -p, /var/lib/ramus]
  - [systemctl, daemon-reload]
  - [systemctl, enable, --now, var-lib-ramus.automount]
`
}

// rules let everybody reach the pages, and administrators SSH.
func rules(admins []string) hcloud.FirewallRuleArray {
	all := pulumi.ToStringArray([]string{"0.0.0.0/0", "::/0"})
	in := func(protocol, port string, from pulumi.StringArray) hcloud.FirewallRuleArgs {
		r := hcloud.FirewallRuleArgs{Direction: pulumi.String("in"), Protocol: pulumi.String(protocol), SourceIps: from}
		if port != "" {
			r.Port = pulumi.String(port)
		}
		return r
	}
	list := hcloud.FirewallRuleArray{in("tcp", "80", all), in("tcp", "443", all), in("icmp", "", all)}
	if len(admins) > 0 {
		list = append(list, in("tcp", "22", pulumi.ToStringArray(admins)))
	}
	return list
}

// number returns an id of Hetzner as the arguments of resources want it.
func number(id pulumi.IDOutput) pulumi.IntOutput {
	return id.ToStringOutput().ApplyT(func(s string) (int, error) { return strconv.Atoi(s) }).(pulumi.IntOutput)
}

// bucket makes the bucket of large artifacts.
func bucket(ctx *pulumi.Context, s settings, out pulumi.Map) error {
	b, err := cloudflare.NewR2Bucket(ctx, "artifacts", &cloudflare.R2BucketArgs{AccountId: pulumi.String(s.account),
		Name: pulumi.String(strings.ReplaceAll(s.domain, ".", "-") + "-artifacts")}, pulumi.Protect(true))
	if err != nil {
		return err
	}
	out["bucket"] = pulumi.Sprintf("https://%s.r2.cloudflarestorage.com/%s", s.account, b.Name)
	return nil
}

// names sets the names of the parts of the server, and one for all workspaces.
func names(ctx *pulumi.Context, s settings, machine *hcloud.Server) error {
	for _, part := range []string{"app", "api", "content", "*"} {
		for kind, address := range map[string]pulumi.StringOutput{"A": machine.Ipv4Address, "AAAA": machine.Ipv6Address} {
			label := part
			if part == "*" {
				label = "workspaces"
			}
			_, err := cloudflare.NewRecord(ctx, label+"-"+strings.ToLower(kind), &cloudflare.RecordArgs{
				ZoneId: pulumi.String(s.zone), Name: pulumi.String(part + "." + s.domain), Type: pulumi.String(kind),
				Content: address, Ttl: pulumi.Int(300), Proxied: pulumi.Bool(false)})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
