#include "textflag.h"

// func cloneThread(flags uintptr) int
// The new thread has no stack of its own and needs none: it waits for ever.
TEXT ·cloneThread(SB),NOSPLIT,$0-16
	MOVQ	flags+0(FP), DI
	MOVQ	$0, SI
	MOVQ	$0, DX
	MOVQ	$0, R10
	MOVQ	$0, R8
	MOVL	$56, AX
	SYSCALL
	CMPQ	AX, $0
	JEQ	child
	MOVQ	AX, ret+8(FP)
	RET
child:
	MOVL	$34, AX
	SYSCALL
	JMP	child
