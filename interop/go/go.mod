module smig.invalid/interop

go 1.19
