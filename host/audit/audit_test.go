package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fresh opens a trail in a new folder with short segments.
func fresh(t testing.TB) (*Log, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "audit")
	return open(t, dir), dir
}

func open(t testing.TB, dir string) *Log {
	t.Helper()
	l, err := Open(dir)
	must(t, err)
	l.limit = 1000
	t.Cleanup(l.release)
	return l
}

func fill(t testing.TB, l *Log, n int) {
	t.Helper()
	for i := range n {
		_, err := l.Append(Record{Kind: KindCall, Run: "r", App: "notes", Export: fmt.Sprint("export ", i), Input: &Payload{Bytes: int64(i)}})
		must(t, err)
	}
}

func verify(t testing.TB, dir string, head *Checkpoint) Verdict {
	t.Helper()
	trail, err := OpenTrail(dir)
	must(t, err)
	defer trail.Close()
	v, err := trail.Verify(head)
	must(t, err)
	return v
}

func good(t testing.TB, dir string, records int64) {
	t.Helper()
	if v := verify(t, dir, nil); !v.OK() || v.Records != records {
		t.Fatalf("want %d records and no fault: %+v", records, v)
	}
}

func headOf(t testing.TB, dir string) Checkpoint {
	t.Helper()
	trail, err := OpenTrail(dir)
	must(t, err)
	defer trail.Close()
	c, ok, err := trail.Head()
	must(t, err)
	if !ok {
		t.Fatal("no head")
	}
	return c
}

// copyOf is a copy of a trail to spoil.
func copyOf(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(to, os.DirFS(dir)))
	must(t, os.Chmod(to, 0o700))
	for _, name := range []string{keyFile, lockFile} {
		must(t, os.Chmod(filepath.Join(to, name), 0o600))
	}
	return to
}

func segmentFiles(t testing.TB, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*"+segmentExt))
	must(t, err)
	slices.Sort(list)
	return list
}

func edit(t testing.TB, name string, f func([]byte) []byte) {
	t.Helper()
	raw, err := os.ReadFile(name)
	must(t, err)
	must(t, os.WriteFile(name, f(raw), 0o600))
}

func TestTrailIsGood(t *testing.T) {
	l, dir := fresh(t)
	good(t, dir, 0)
	for n := int64(0); n < 40; n++ {
		fill(t, l, 1)
		good(t, dir, n+1)
		if n%7 == 0 {
			must(t, l.Sync())
			good(t, dir, n+1)
		}
	}
	must(t, l.Close())
	if v := verify(t, dir, nil); v.Signed != 40 || len(segmentFiles(t, dir)) < 5 {
		t.Errorf("%+v, %d segments", v, len(segmentFiles(t, dir)))
	}
	l = open(t, dir) // goes on
	fill(t, l, 3)
	good(t, dir, 43)
}

// Every way to spoil a trail is found, without a head kept elsewhere.
func TestSpoiled(t *testing.T) {
	l, dir := fresh(t)
	fill(t, l, 40)
	must(t, l.Close())
	other, otherDir := fresh(t)
	fill(t, other, 40)
	must(t, other.Close())
	lineOf := func(raw []byte, n int) []byte { return bytes.SplitAfter(raw, []byte("\n"))[n] }
	mid := filepath.Base(segmentFiles(t, dir)[3])
	for name, spoil := range map[string]func(dir string){
		"an edit": func(dir string) {
			edit(t, filepath.Join(dir, mid), func(raw []byte) []byte { return bytes.Replace(raw, []byte("notes"), []byte("nodes"), 1) })
		},
		"an edit with a new chain": func(dir string) { rechain(t, dir, func(r *Record) { r.App = "nodes" }) },
		"a deletion": func(dir string) {
			edit(t, filepath.Join(dir, mid), func(raw []byte) []byte { return bytes.Replace(raw, lineOf(raw, 1), nil, 1) })
		},
		"an insertion": func(dir string) {
			edit(t, filepath.Join(dir, mid), func(raw []byte) []byte { return append(slices.Clone(lineOf(raw, 0)), raw...) })
		},
		"a reordering": func(dir string) {
			edit(t, filepath.Join(dir, mid), func(raw []byte) []byte {
				return slices.Concat(lineOf(raw, 1), lineOf(raw, 0), raw[len(lineOf(raw, 0))+len(lineOf(raw, 1)):])
			})
		},
		"a cut line": func(dir string) {
			edit(t, filepath.Join(dir, mid), func(raw []byte) []byte { return raw[:len(raw)-5] })
		},
		"a cut end": func(dir string) {
			all := segmentFiles(t, dir)
			edit(t, all[len(all)-1], func(raw []byte) []byte { return raw[:bytes.LastIndexByte(raw[:len(raw)-1], '\n')+1] })
		},
		"a removed segment":       func(dir string) { must(t, os.Remove(filepath.Join(dir, mid))) },
		"a removed first segment": func(dir string) { must(t, os.Remove(segmentFiles(t, dir)[0])) },
		"a removed last segment":  func(dir string) { all := segmentFiles(t, dir); must(t, os.Remove(all[len(all)-1])) },
		"white space": func(dir string) {
			edit(t, filepath.Join(dir, mid), func(raw []byte) []byte { return bytes.Replace(raw, []byte(":"), []byte(": "), 1) })
		},
		"an unknown field": func(dir string) {
			edit(t, filepath.Join(dir, mid), func(raw []byte) []byte { return bytes.Replace(raw, []byte(`{"seq"`), []byte(`{"x":1,"seq"`), 1) })
		},
		"a line without an end": func(dir string) {
			edit(t, filepath.Join(dir, mid), func(raw []byte) []byte { return append(raw, bytes.Repeat([]byte("x"), 2*MaxLine)...) })
		},
		"a changed hash": func(dir string) {
			edit(t, filepath.Join(dir, hashFile), func(raw []byte) []byte { raw[70] ^= 1; return raw })
		},
		"a changed head": func(dir string) {
			edit(t, filepath.Join(dir, checkpointFile), func(raw []byte) []byte { return bytes.Replace(raw, []byte("\n40\n"), []byte("\n39\n"), 1) })
		},
		"another trail's head": func(dir string) {
			edit(t, filepath.Join(dir, checkpointFile), func([]byte) []byte {
				raw, err := os.ReadFile(filepath.Join(otherDir, checkpointFile))
				must(t, err)
				return raw
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := copyOf(t, dir)
			good(t, to, 40) // control
			spoil(to)
			if v := verify(t, to, nil); v.OK() {
				t.Errorf("it was not found: %+v", v)
			}
		})
	}
}

// rechain writes a trail anew with consistent numbers, chain and hashes, as
// somebody without the key can.
func rechain(t *testing.T, dir string, change func(*Record)) {
	t.Helper()
	must(t, os.Truncate(filepath.Join(dir, hashFile), 0))
	hashes, err := os.OpenFile(filepath.Join(dir, hashFile), os.O_RDWR, 0o600)
	must(t, err)
	defer hashes.Close()
	at := position{}
	for _, name := range segmentFiles(t, dir) {
		edit(t, name, func(raw []byte) (out []byte) {
			for line := range bytes.Lines(raw) {
				r, err := decode(bytes.TrimSuffix(line, []byte("\n")))
				must(t, err)
				change(&r)
				r.Seq, r.Prev = at.n, at.last
				again, err := encode(r)
				must(t, err)
				must(t, addHash(hashes, at.n, again))
				out = append(append(out, again...), '\n')
				at = at.after(again)
			}
			return out
		})
	}
}

// What only a head kept elsewhere can tell: that everything was rolled back, or
// written anew by somebody who has the key.
func TestAnchored(t *testing.T) {
	l, dir := fresh(t)
	fill(t, l, 20)
	must(t, l.Sync())
	early := copyOf(t, dir)
	fill(t, l, 20)
	must(t, l.Close())
	head := headOf(t, dir)

	l = open(t, dir)
	fill(t, l, 7)
	must(t, l.Sync())
	if v := verify(t, dir, &head); !v.OK() || !v.Anchored {
		t.Errorf("the trail goes on from its head: %+v", v)
	}
	if v := verify(t, early, nil); !v.OK() || v.Anchored {
		t.Errorf("a rolled back trail is consistent by itself: %+v", v)
	}
	if v := verify(t, early, &head); v.OK() || v.Anchored {
		t.Errorf("a rolled back trail: %+v", v)
	}
	fork := open(t, early) // with the key
	fill(t, fork, 30)
	must(t, fork.Sync())
	if v := verify(t, early, nil); !v.OK() {
		t.Errorf("a fork is consistent by itself: %+v", v)
	}
	if v := verify(t, early, &head); v.OK() || v.Anchored {
		t.Errorf("a fork: %+v", v)
	}
}

// However a writer ends, at whatever byte, what was signed stays, what was not
// is kept as far as it is whole, and the rest is told.
func TestCrashAtEveryByte(t *testing.T) {
	l, dir := fresh(t)
	fill(t, l, 5)
	must(t, l.Sync())
	fill(t, l, 2)
	files := []string{hashFile}
	for _, name := range segmentFiles(t, dir) {
		files = append(files, filepath.Base(name))
	}
	last := files[len(files)-1]
	for _, name := range []string{last, hashFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		head := headOf(t, dir)
		signed := head.at.offset
		if name == hashFile {
			signed = hashesSize(head.Tree.N)
		}
		for size := signed; size <= info.Size(); size++ {
			to := copyOf(t, dir)
			must(t, os.Truncate(filepath.Join(to, name), size))
			again := open(t, to)
			fill(t, again, 1)
			must(t, again.Sync())
			v := verify(t, to, nil)
			if !v.OK() || v.Records < 6 || name == hashFile && v.Records != 8 {
				t.Fatalf("%s cut to %d bytes: %+v", name, size, v)
			}
			again.release()
		}
	}
}

func TestGarbageAfterACrashIsTold(t *testing.T) {
	l, dir := fresh(t)
	fill(t, l, 2)
	must(t, l.Sync())
	fill(t, l, 2)
	all := segmentFiles(t, dir)
	edit(t, all[len(all)-1], func(raw []byte) []byte { return append(raw, make([]byte, 300)...) })
	again := open(t, dir)
	fill(t, again, 1)
	must(t, again.Sync())
	good(t, dir, 6)
	if !strings.Contains(text(t, dir), "300 bytes that are no record") {
		t.Error("nothing tells of what was cut off")
	}
}

func text(t testing.TB, dir string) (all string) {
	t.Helper()
	for _, name := range segmentFiles(t, dir) {
		raw, err := os.ReadFile(name)
		must(t, err)
		all += string(raw)
	}
	return all
}

// A trail from which signed records are missing is not gone on with.
func TestCutTrailIsNotWritten(t *testing.T) {
	l, dir := fresh(t)
	fill(t, l, 12)
	must(t, l.Close())
	for name, spoil := range map[string]func(dir string){
		"segment": func(dir string) { all := segmentFiles(t, dir); must(t, os.Truncate(all[len(all)-1], 10)) },
		"hashes":  func(dir string) { must(t, os.Truncate(filepath.Join(dir, hashFile), 64)) },
		"head":    func(dir string) { must(t, os.WriteFile(filepath.Join(dir, checkpointFile), []byte("x"), 0o600)) },
		"key":     func(dir string) { must(t, os.WriteFile(filepath.Join(dir, keyFile), []byte("x"), 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			to := copyOf(t, dir)
			must(t, open(t, to).Close()) // control
			spoil(to)
			if l, err := Open(to); err == nil {
				l.release()
				t.Error("it was opened for writing")
			}
		})
	}
}

func TestSeveralWriters(t *testing.T) {
	_, dir := fresh(t)
	var all sync.WaitGroup
	for range 4 {
		l := open(t, dir)
		all.Go(func() {
			for i := range 50 {
				if _, err := l.Append(Record{Kind: KindCall, Export: "e"}); err != nil {
					t.Error(err)
				}
				if i%9 == 0 {
					if err := l.Sync(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	good(t, dir, 200)
}

// TestKilledWriter kills processes that write at random moments.
func TestKilledWriter(t *testing.T) {
	if dir := os.Getenv("AUDIT_TEST_WRITE"); dir != "" {
		for l := open(t, dir); ; {
			fill(t, l, 3)
			must(t, l.Sync())
		}
	}
	_, dir := fresh(t)
	for n := range 15 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestKilledWriter$")
		cmd.Env = append(os.Environ(), "AUDIT_TEST_WRITE="+dir)
		must(t, cmd.Start())
		time.Sleep(time.Duration(20+7*n) * time.Millisecond)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	l := open(t, dir)
	fill(t, l, 1)
	must(t, l.Sync())
	if v := verify(t, dir, nil); !v.OK() || v.Records < 15 {
		t.Errorf("%+v", v)
	}
}

// TestFullDisk: a record that finds no room is an error and leaves nothing, and
// the trail goes on when there is room again.
func TestFullDisk(t *testing.T) {
	l, dir := fresh(t)
	l.limit = 1 << 20
	fill(t, l, 10)
	must(t, l.Sync())
	before := unix.Rlimit{}
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	seq := l.at.n
	small := before
	small.Cur = uint64(l.at.offset) + 100 // in the middle of the next line
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &small))
	_, err := l.Append(Record{Kind: KindCall, Export: strings.Repeat("e", 200)})
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before))
	if !errors.Is(err, unix.EFBIG) {
		t.Errorf("err = %v, want EFBIG", err)
	}
	good(t, dir, seq)
	fill(t, l, 1)
	good(t, dir, seq+1)
}

func TestPrune(t *testing.T) {
	l, dir := fresh(t)
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l.now = func() time.Time { clock = clock.Add(time.Hour); return clock }
	fill(t, l, 30)
	must(t, l.Sync())
	head := headOf(t, dir)
	removed, err := l.Prune(time.Date(2026, 1, 1, 15, 0, 0, 0, time.UTC))
	must(t, err)
	if removed == 0 || removed > 15 {
		t.Errorf("%d removed", removed)
	}
	if v := verify(t, dir, &head); !v.OK() || !v.Anchored || v.First != removed || v.Records != 31 {
		t.Errorf("%+v", v)
	}
	fill(t, l, 4)
	must(t, l.Close())
	again := open(t, dir)
	fill(t, again, 1)
	good(t, dir, 36)
	trail, err := OpenTrail(dir)
	must(t, err)
	if _, err := trail.Prove(removed); err != nil {
		t.Error(err)
	}
	if _, err := trail.Prove(0); err == nil {
		t.Error("a pruned record was proved")
	}
	must(t, os.Remove(segmentFiles(t, dir)[0])) // more than the trail says
	if v := verify(t, dir, nil); v.OK() {
		t.Error("a removed segment was not found")
	}
}

func TestProof(t *testing.T) {
	l, dir := fresh(t)
	fill(t, l, 21)
	must(t, l.Sync())
	trail, err := OpenTrail(dir)
	must(t, err)
	for seq := range int64(21) {
		p, err := trail.Prove(seq)
		must(t, err)
		r, err := p.Verify(trail.Verifier())
		must(t, err)
		if r.Export != fmt.Sprint("export ", seq) {
			t.Errorf("record %d: %+v", seq, r)
		}
		for name, spoil := range map[string]func(*Proof){
			"record":     func(p *Proof) { p.Record = strings.Replace(p.Record, "notes", "nodes", 1) },
			"number":     func(p *Proof) { p.Record = strings.Replace(p.Record, `"seq":`, `"seq":1`, 1) },
			"head":       func(p *Proof) { p.Checkpoint = strings.Replace(p.Checkpoint, "\n21\n", "\n22\n", 1) },
			"hash":       func(p *Proof) { p.Hashes = slices.Clone(p.Hashes); p.Hashes[0][3] ^= 1 },
			"no hash":    func(p *Proof) { p.Hashes = p.Hashes[1:] },
			"more":       func(p *Proof) { p.Hashes = append(slices.Clone(p.Hashes), tlog.Hash{}) },
			"everything": func(p *Proof) { *p = Proof{} },
		} {
			spoiled := p
			if spoil(&spoiled); spoiled.Record == p.Record && name == "record" {
				t.Fatal("nothing was spoiled")
			}
			if _, err := spoiled.Verify(trail.Verifier()); err == nil {
				t.Errorf("record %d: a proof with another %s is good", seq, name)
			}
		}
		raw, err := json.Marshal(p)
		must(t, err)
		var same Proof
		must(t, json.Unmarshal(raw, &same))
		if _, err := same.Verify(trail.Verifier()); err != nil {
			t.Error(err)
		}
	}
	if _, err := trail.Prove(21); err == nil {
		t.Error("a record that is not there was proved")
	}
}

func TestEach(t *testing.T) {
	l, dir := fresh(t)
	fill(t, l, 25)
	trail, err := OpenTrail(dir)
	must(t, err)
	var seen []int64
	stop := errors.New("stop")
	done := make(chan error)
	go func() {
		done <- trail.Each(t.Context(), 7, true, func(r Record, line []byte) error {
			if seen = append(seen, r.Seq); r.Seq == 39 {
				return stop
			}
			return nil
		})
	}()
	fill(t, l, 15) // also into new segments
	if err := <-done; !errors.Is(err, stop) {
		t.Error(err)
	}
	if len(seen) != 33 || seen[0] != 7 {
		t.Errorf("%v", seen)
	}
}

// No text breaks a line, and every one is written so that it can be read again.
func TestHostileText(t *testing.T) {
	l, dir := fresh(t)
	for _, s := range []string{"a\nb", "\x00\x1b[31m", "\xff\xfe", "</script>&", "\u2028\u2029", `"},{"seq":1`, strings.Repeat("é", 50000), strings.Repeat("\x01", 50000)} {
		_, err := l.Append(Record{Kind: KindDenial, Run: s, App: s, Export: s, Reason: s, Capability: s, Actor: s, ActorBy: s,
			Evidence: &Evidence{Kind: s, Object: s, Comm: s, Blockers: s, Syscall: s},
			Bound:    &Bound{Image: s, Machine: s, Guest: Guest{Kernel: s, Steps: slices.Repeat([]string{s}, 100)}}})
		if err != nil {
			t.Errorf("%.20q: %v", s, err)
		}
	}
	good(t, dir, 8)
}

func TestForeignFolder(t *testing.T) {
	base := t.TempDir()
	must(t, os.Mkdir(filepath.Join(base, "own"), 0o700))
	must(t, os.Mkdir(filepath.Join(base, "wide"), 0o700))
	must(t, os.Chmod(filepath.Join(base, "wide"), 0o777))
	must(t, os.Symlink("own", filepath.Join(base, "link")))
	must(t, os.WriteFile(filepath.Join(base, "file"), nil, 0o600))
	for _, c := range []struct {
		name string
		ok   bool
	}{{"own", true}, {"new/er", true}, {"wide", false}, {"link", false}, {"file", false}, {"file/x", false}} {
		l, err := Open(filepath.Join(base, c.name))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			l.release()
		}
	}
}

// FuzzFollow: whatever a file holds, reading it ends, and what is accepted is
// what a writer wrote.
func FuzzFollow(f *testing.F) {
	l, dir := fresh(f)
	fill(f, l, 3)
	must(f, l.Close())
	raw, err := os.ReadFile(segmentFiles(f, dir)[0])
	must(f, err)
	f.Add(raw)
	f.Add(bytes.Replace(raw, []byte("notes"), []byte("nodes"), 1))
	f.Add([]byte("{}\n"))
	f.Add(bytes.Repeat([]byte("x"), MaxLine+1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var written []byte
		end, err := follow(bytes.NewReader(raw), position{}, func(r Record, _ []byte) error {
			line, err := encode(r)
			must(t, err)
			written = append(append(written, line...), '\n')
			return nil
		})
		if !bytes.HasPrefix(raw, written) || end.offset != int64(len(written)) || err == nil && len(written) != len(raw) {
			t.Errorf("%d of %d bytes were accepted: %v", len(written), len(raw), err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	l, _ := fresh(b)
	l.limit = segmentSize
	for b.Loop() {
		fill(b, l, 1)
	}
}

func BenchmarkVerify(b *testing.B) {
	l, dir := fresh(b)
	l.limit = segmentSize
	fill(b, l, 50_000)
	must(b, l.Sync())
	b.ResetTimer()
	for b.Loop() {
		good(b, dir, 50_000)
	}
	b.ReportMetric(50_000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
