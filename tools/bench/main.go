package main
import ("context";"fmt";"os")
func main(){ ctx:=context.Background(); dir:="/tmp/w/bench"; i,err:=initramfs(ctx,dir); fmt.Println(i,err); k,v,err:=cloudKernel(ctx,dir); fmt.Println(k,v,err); fmt.Println(instructions(ctx, os.Args[1], i)); fmt.Println(instructions(ctx,k,i)) }
