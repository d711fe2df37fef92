package sandbox

// CheckShares shows tests what Start makes of shares.
func CheckShares(in []Share) (out []ShareInfo, notes []string, err error) {
	shares, notes, err := checkShares(in)
	return (&Sandbox{shares: shares}).Shares(), notes, err
}
