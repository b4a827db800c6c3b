package containers

// Limits and features that an engine may be unable to give on a machine. The sandbox names them for `ramus doctor`; the conformance
// suite leaves out their tests.
const (
	AbilityMemory   = "memory limit"
	AbilityCPU      = "cpu limit"
	AbilityPIDs     = "pids limit by cgroup"
	AbilityTmpSize  = "limit of /tmp"
	AbilityNoUserNS = "user namespaces switched off inside"
	AbilityBeside   = "sidecars"
	AbilityImage    = "images"
	AbilityRootUser = "root inside"
)
