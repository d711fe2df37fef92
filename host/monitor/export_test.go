package monitor

// WithEnv gives the monitor variables beside PATH.
func (o Options) WithEnv(env ...string) Options {
	o.env = env
	return o
}
