package boot

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestCodeThatIsBeingRemoved: an app ends, and at once its image is sent again.
func TestCodeThatIsBeingRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remove := make(chan struct{})
		c := newCodes(&System{
			Unmount:   func(string) error { <-remove; return nil },
			RemoveAll: func(string) error { return nil },
		})
		const digest = "sha256:0"
		c.held[digest] = &code{ready: true, users: 1}
		go c.release(digest)
		synctest.Wait()
		got := make(chan error, 1)
		go func() {
			known, err := c.reserve(digest)
			if known {
				err = errors.New("what is being removed counts as held")
			}
			got <- err
		}()
		synctest.Wait()
		select {
		case err := <-got:
			t.Fatalf("reserve did not wait for the removal: %v", err)
		default:
		}
		close(remove)
		if err := <-got; err != nil {
			t.Error(err)
		}
		if _, err := c.reserve(digest); err == nil { // control: two at once
			t.Error("an image that is being received was reserved again")
		}
	})
}
