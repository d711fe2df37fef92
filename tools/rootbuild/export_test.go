package rootbuild

// Mounted is for tests of the real image.
var Mounted = mounted
