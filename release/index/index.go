// Package index owns the image index: the one JSON file that names every
// artifact of a built image by sha256 and size.
package index

// Schema is the version of the index format.
const Schema = 1

// Kinds of images. berth runs apps only on KindImage.
const (
	KindImage = "berth-image"
	KindTest  = "berth-test-image" // its enforcer accepts ablations
)

// Unreleased is the version of every local build.
const Unreleased = "unreleased"

// Index describes one image of one architecture.
type Index struct {
	Schema    int               `json:"schema"`
	Kind      string            `json:"kind"`
	Name      string            `json:"name"` // "base"
	Arch      string            `json:"arch"` // "x86_64", "arm64"
	Version   string            `json:"version"`
	Kernel    Artifact          `json:"kernel"` // ELF vmlinux (x86_64), Image (arm64)
	Root      Root              `json:"root"`
	Landlock  int               `json:"landlock_abi"`    // what the kernel promises
	Errata    int               `json:"landlock_errata"` // bit N-1: that erratum N of Landlock is fixed
	Apps      []App             `json:"apps"`
	Toolchain map[string]string `json:"toolchain"`
}

// Artifact is one file beside the index.
type Artifact struct {
	File   string `json:"file"` // base name
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"` // bytes
}

// Root is the root filesystem: an EROFS image of DataSize bytes with its
// dm-verity tree (no superblock, sha256, 4096-byte blocks) appended.
type Root struct {
	Artifact
	DataSize   int64  `json:"data_size"`
	VerityRoot string `json:"verity_root"` // hex
	VeritySalt string `json:"verity_salt"` // hex
}

// App is a first-party app inside the verified root, at /apps/<name>.
type App struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Code    string `json:"code"` // digest of its app image, as policies have it
}
