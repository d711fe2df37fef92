package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Ports that the policy of the work names, to bind and to connect to.
const (
	portTCP  = 7001
	portUDP  = 7002
	portUDP2 = 7003
)

// sockets are between the app's own processes.
func sockets() []piece {
	return []piece{
		{"socketpair", socketpairs}, {"pass-descriptor", passDescriptor}, {"unix-path", unixPath}, {"unix-abstract", unixAbstract}, {"unix-datagram", unixDatagram},
		{"tcp", tcp}, {"udp", udp}, {"http", httpWork},
	}
}

func socketpairs(w *world) error {
	kinds := map[string]int{"stream": unix.SOCK_STREAM, "seqpacket": unix.SOCK_SEQPACKET}
	if w.unix {
		kinds["datagram"] = unix.SOCK_DGRAM
	}
	for name, kind := range kinds {
		p, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		got := make([]byte, 16)
		_, err = unix.Write(p[0], []byte("hello"))
		n, err2 := unix.Read(p[1], got)
		err = errors.Join(err, err2, unix.SetsockoptInt(p[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1), unix.Shutdown(p[0], unix.SHUT_WR), unix.Close(p[0]), unix.Close(p[1]))
		if err != nil || string(got[:max(n, 0)]) != "hello" {
			return fmt.Errorf("%s: %q, %w", name, got[:max(n, 0)], err)
		}
	}
	return nil
}

// passDescriptor hands an open file to a child over a socket pair.
func passDescriptor(w *world) error {
	if err := write(w.path("f"), "passed on"); err != nil {
		return err
	}
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(p[0]), "ours"), os.NewFile(uintptr(p[1]), "theirs")
	defer ours.Close()
	f, err := os.Open(w.path("f"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Sendmsg(p[0], []byte{1}, unix.UnixRights(int(f.Fd())), nil, 0); err != nil {
		return err
	}
	cmd := exec.CommandContext(w, self, "child", "receive")
	cmd.ExtraFiles = []*os.File{theirs}
	out, err := cmd.CombinedOutput()
	theirs.Close()
	if err != nil || string(out) != "passed on" {
		return fmt.Errorf("child: %q, %w", out, err)
	}
	return nil
}

// unixPath serves on a path, where the sandbox can tell the app's sockets from
// those of others.
func unixPath(w *world) error {
	if !w.unix {
		return nil
	}
	name := w.path("s")
	return w.overUnix(&net.UnixAddr{Name: name, Net: "unix"}, name)
}

func unixAbstract(w *world) error {
	if !w.unix {
		return nil
	}
	name := "@work-" + filepath.Base(w.dir)
	return w.overUnix(&net.UnixAddr{Name: name, Net: "unix"}, name)
}

func (w *world) overUnix(at *net.UnixAddr, name string) error {
	l, err := net.ListenUnix("unix", at)
	if err != nil {
		return err
	}
	defer l.Close()
	go echo(l)
	c, err := net.Dial("unix", name)
	if err != nil {
		return fmt.Errorf("own process: %w", err)
	}
	if err := errors.Join(talk(c), c.Close()); err != nil {
		return err
	}
	if out, err := exec.CommandContext(w, self, "child", "talk", "unix", name).CombinedOutput(); err != nil {
		return fmt.Errorf("child: %w: %s", err, out)
	}
	return nil
}

func unixDatagram(w *world) error {
	if !w.unix {
		return nil
	}
	server, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: w.path("server"), Net: "unixgram"})
	if err != nil {
		return err
	}
	defer server.Close()
	client, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: w.path("client"), Net: "unixgram"})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.WriteTo([]byte("ping"), server.LocalAddr()); err != nil {
		return err
	}
	buf := make([]byte, 16)
	n, from, err := server.ReadFrom(buf)
	if err != nil {
		return err
	}
	if _, err := server.WriteTo(buf[:n], from); err != nil {
		return err
	}
	n, err = client.Read(buf)
	if err == nil && string(buf[:n]) != "ping" {
		err = mismatch("answer", buf[:n], "ping")
	}
	return err
}

// echo answers every connection with what it says.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			io.Copy(c, c)
			c.Close()
		}()
	}
}

// talk says something and wants it back.
func talk(c net.Conn) error {
	want := bytes.Repeat([]byte("there and back\n"), 1000)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(want)
		sent <- err
	}()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil {
		return errors.Join(err, <-sent)
	}
	if !bytes.Equal(got, want) {
		return errors.New("what came back is not what was sent")
	}
	return <-sent
}

// tcp listens on a declared port, on both loopbacks, one after the other and
// again at once, with clients in this process and in others.
func tcp(w *world) error {
	for _, host := range []string{"127.0.0.1", "::1", ""} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(portTCP)))
		if err != nil {
			return err
		}
		go echo(l)
		if host == "" {
			host = "127.0.0.1"
		}
		at := net.JoinHostPort(host, strconv.Itoa(portTCP))
		err = each(
			step{"many connections", func() error {
				var wg sync.WaitGroup
				errs := make([]error, 8)
				for i := range errs {
					wg.Go(func() {
						for range w.many(20) {
							c, err := net.Dial("tcp", at)
							if err != nil {
								errs[i] = err
								return
							}
							errs[i] = errors.Join(errs[i], talk(c), c.Close())
						}
					})
				}
				wg.Wait()
				return errors.Join(errs...)
			}},
			step{"child", func() error {
				if out, err := exec.CommandContext(w, self, "child", "talk", "tcp", at).CombinedOutput(); err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			}},
			step{"options", func() error {
				c, err := net.Dial("tcp", at)
				if err != nil {
					return err
				}
				t := c.(*net.TCPConn)
				return errors.Join(t.SetNoDelay(true), t.SetKeepAlive(true), t.SetReadBuffer(1<<16), t.SetLinger(1), t.CloseWrite(), t.Close())
			}},
		)
		if err := errors.Join(err, l.Close()); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// udp between two declared ports, and from a port of the kernel's choice.
func udp(*world) error {
	for _, host := range []string{"127.0.0.1", "::1"} {
		ip := net.ParseIP(host)
		server, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: portUDP})
		if err != nil {
			return err
		}
		client, err := net.DialUDP("udp", &net.UDPAddr{IP: ip, Port: portUDP2}, &net.UDPAddr{IP: ip, Port: portUDP})
		if err != nil {
			return errors.Join(err, server.Close())
		}
		buf := make([]byte, 64)
		err = each(
			step{"question", func() error { _, err := client.Write([]byte("question")); return err }},
			step{"answer", func() error {
				n, from, err := server.ReadFromUDP(buf)
				if err == nil {
					_, err = server.WriteToUDP(buf[:n], from)
				}
				if err == nil {
					n, err = client.Read(buf)
				}
				if err == nil && string(buf[:n]) != "question" {
					err = mismatch("answer", buf[:n], "question")
				}
				return err
			}},
			step{"from any port", func() error {
				c, err := net.Dial("udp", net.JoinHostPort(host, strconv.Itoa(portUDP)))
				if err != nil {
					return err
				}
				defer c.Close()
				if _, err := c.Write([]byte("anonymous")); err != nil {
					return err
				}
				n, _, err := server.ReadFromUDP(buf)
				if err == nil && string(buf[:n]) != "anonymous" {
					err = mismatch("what came", buf[:n], "anonymous")
				}
				return err
			}},
		)
		if err := errors.Join(err, client.Close(), server.Close()); err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
	}
	return nil
}

func httpWork(w *world) error {
	l, err := net.Listen("tcp", net.JoinHostPort("localhost", strconv.Itoa(portTCP)))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.Copy(rw, r.Body) })}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	for i := range w.many(50) {
		want := fmt.Sprint("request ", i)
		resp, err := client.Post(fmt.Sprintf("http://localhost:%d/", portTCP), "text/plain", bytes.NewReader([]byte(want)))
		if err != nil {
			return err
		}
		got, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if string(got) != want {
			return mismatch("answer", got, want)
		}
	}
	transport.CloseIdleConnections()
	if err := server.Shutdown(context.WithoutCancel(w)); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// receiveDescriptor is the child of passDescriptor.
func receiveDescriptor() error {
	buf, oob := make([]byte, 1), make([]byte, 64)
	_, n, _, _, err := unix.Recvmsg(3, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("%d messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, bufio.NewReader(os.NewFile(uintptr(fds[0]), "passed")))
	return err
}

func talkTo(network, address string) error {
	c, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	return talk(c)
}
