// Package verity owns the dm-verity hash tree of an image: it appends the tree
// and returns the root digest, with veritysetup of cryptsetup.
package verity

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Tool is the program that must be installed; Package has it on Debian.
const (
	Tool    = "veritysetup"
	Package = "cryptsetup-bin"
)

// BlockSize is the size of data and hash blocks in bytes.
const BlockSize = 4096

// Salt is the salt of every tree, in hex. A salt keeps precomputed hash trees of
// known content from being reused; it needs no secrecy, only not to be anyone
// else's, and a fixed one keeps builds identical. It is sha256("berth root image 1").
func Salt() string {
	sum := sha256.Sum256([]byte("berth root image 1"))
	return hex.EncodeToString(sum[:])
}

// Format appends the tree of the file name to it and returns the root digest in
// hex and the size of the data that it covers: everything before the tree.
func Format(ctx context.Context, name string) (digest string, dataSize int64, err error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", 0, fmt.Errorf("cannot make hash tree: %w", err)
	}
	size := info.Size()
	if size == 0 || size%BlockSize != 0 {
		return "", 0, fmt.Errorf("cannot make hash tree of %s: %d bytes are not whole blocks of %d", name, size, BlockSize)
	}
	out, err := run(ctx, append([]string{"format", name, name}, tree(size)...)...)
	if err != nil {
		return "", 0, fmt.Errorf("cannot make hash tree of %s: %w", name, err)
	}
	digest, err = rootHash(out)
	if err != nil {
		return "", 0, fmt.Errorf("cannot make hash tree of %s: %w", name, err)
	}
	return digest, size, nil
}

// Verify reads all of an image and its tree and compares it with the digest.
func Verify(ctx context.Context, name, digest string, dataSize int64) error {
	if _, err := run(ctx, append([]string{"verify", name, name, digest}, tree(dataSize)...)...); err != nil {
		return fmt.Errorf("cannot verify %s against root digest %s: %w", name, digest, err)
	}
	return nil
}

// Version returns what veritysetup says of itself.
func Version(ctx context.Context) (string, error) {
	out, err := run(ctx, "--version")
	line, _, _ := strings.Cut(out, "\n")
	version, _, _ := strings.Cut(line, " flags:")
	return version, err
}

// tree are the options that describe a tree appended to dataSize bytes.
func tree(dataSize int64) []string {
	block := strconv.Itoa(BlockSize)
	return []string{
		"--no-superblock", "--format=1", "--hash=sha256", "--salt=" + Salt(),
		"--data-block-size=" + block, "--hash-block-size=" + block,
		"--data-blocks=" + strconv.FormatInt(dataSize/BlockSize, 10),
		"--hash-offset=" + strconv.FormatInt(dataSize, 10),
	}
}

// Find returns the path of veritysetup, also where an ordinary user's PATH has
// no sbin.
func Find() (string, error) {
	for _, name := range []string{Tool, "/usr/sbin/" + Tool, "/sbin/" + Tool} {
		if found, err := exec.LookPath(name); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("cannot find %s: %w", Tool, exec.ErrNotFound)
}

func run(ctx context.Context, args ...string) (string, error) {
	tool, err := Find()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", Tool, args[0], err, strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}

func rootHash(out string) (string, error) {
	lines := bufio.NewScanner(strings.NewReader(out))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if digest := strings.TrimSpace(value); strings.EqualFold(key, "Root hash") {
			raw, err := hex.DecodeString(digest)
			if err != nil || len(raw) != sha256.Size {
				return "", fmt.Errorf("%s printed the root hash %q", Tool, digest)
			}
			return digest, nil
		}
	}
	return "", errors.New(Tool + " printed no root hash")
}
