#include "textflag.h"

// Each of the 8 lanes of a register is a group. Registers hold no sums across
// lanes and no product is fused with a sum: a lane does what the Go code does.

// func loadLanes(x *laneValues, w *float32, offsets *[lanes]int32, n int, lo, hi *[lanes]float32, sum *[lanes]float64)
TEXT ·loadLanes(SB), NOSPLIT, $0-56
	MOVQ x+0(FP), DI
	MOVQ w+8(FP), SI
	MOVQ offsets+16(FP), AX
	MOVQ n+24(FP), CX
	MOVQ lo+32(FP), R8
	MOVQ hi+40(FP), R9
	MOVQ sum+48(FP), R10
	VMOVDQU (AX), Y1
	VXORPS Y2, Y2, Y2
	KXNORW K1, K1, K1
	VGATHERDPS (SI)(Y1*1), K1, Y2
	VMOVAPS Y2, Y3
	VMOVAPS Y2, Y4
	VPXORQ Z5, Z5, Z5

load:
	VXORPS Y2, Y2, Y2
	KXNORW K1, K1, K1
	VGATHERDPS (SI)(Y1*1), K1, Y2
	VMINPS Y3, Y2, Y3 // Y2 < Y3 ? Y2 : Y3
	VMAXPS Y4, Y2, Y4
	VCVTPS2PD Y2, Z6
	VADDPD Z6, Z5, Z5
	VMOVUPD Z6, (DI)
	ADDQ $4, SI
	ADDQ $64, DI
	DECQ CX
	JNZ load

	VMOVUPS Y3, (R8)
	VMOVUPS Y4, (R9)
	VMOVUPD Z5, (R10)
	VZEROUPPER
	RET

// func centreLanes(x *laneValues, h *float64, n int, origin, hx, hxx *[lanes]float64)
TEXT ·centreLanes(SB), NOSPLIT, $0-48
	MOVQ x+0(FP), DI
	MOVQ h+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ origin+24(FP), AX
	MOVQ hx+32(FP), R8
	MOVQ hxx+40(FP), R9
	VMOVUPD (AX), Z0
	VPXORQ Z1, Z1, Z1
	VPXORQ Z2, Z2, Z2

centre:
	VMOVUPD (DI), Z3
	VSUBPD Z0, Z3, Z3 // Z3 - Z0
	VMOVUPD Z3, (DI)
	VBROADCASTSD (SI), Z4
	VMULPD Z3, Z4, Z4
	VADDPD Z4, Z1, Z1
	VMULPD Z3, Z4, Z4
	VADDPD Z4, Z2, Z2
	ADDQ $8, SI
	ADDQ $64, DI
	DECQ CX
	JNZ centre

	VMOVUPD Z1, (R8)
	VMOVUPD Z2, (R9)
	VZEROUPPER
	RET

DATA half<>+0(SB)/8, $0.5
GLOBL half<>(SB), RODATA, $8
DATA one<>+0(SB)/8, $1.0
GLOBL one<>(SB), RODATA, $8
DATA small<>+0(SB)/8, $1e-9
GLOBL small<>(SB), RODATA, $8
DATA inf<>+0(SB)/8, $0x7ff0000000000000
GLOBL inf<>(SB), RODATA, $8

// func regressLanes(x *laneValues, h *float64, n int, top int32, l *laneLines, t *laneTotals, out *laneLines)
TEXT ·regressLanes(SB), NOSPLIT, $0-56
	MOVQ x+0(FP), DI
	MOVQ h+8(FP), SI
	MOVQ n+16(FP), CX
	MOVL top+24(FP), AX
	MOVQ l+32(FP), R8
	MOVQ t+40(FP), R9
	MOVQ out+48(FP), R10
	VBROADCASTSD one<>(SB), Z0
	VDIVPD (R8), Z0, Z0          // 1 / scale
	VMULPD 64(R8), Z0, Z2        // bias * inv
	VBROADCASTSD half<>(SB), Z1
	VSUBPD Z2, Z1, Z1            // 0.5 - bias*inv
	VPXOR Y2, Y2, Y2
	VPBROADCASTD AX, Y3
	VPXORQ Z4, Z4, Z4            // sum of h*q
	VPXORQ Z5, Z5, Z5            // of h*q*q
	VPXORQ Z6, Z6, Z6            // of h*q*x

code:
	VMOVUPD (DI), Z7
	VMULPD Z0, Z7, Z8
	VADDPD Z1, Z8, Z8
	VCVTTPD2DQ Z8, Y9
	VPMAXSD Y2, Y9, Y9
	VPMINSD Y3, Y9, Y9
	VCVTDQ2PD Y9, Z10
	VBROADCASTSD (SI), Z11
	VMULPD Z10, Z11, Z12
	VADDPD Z12, Z4, Z4
	VMULPD Z10, Z12, Z13
	VADDPD Z13, Z5, Z5
	VMULPD Z7, Z12, Z14
	VADDPD Z14, Z6, Z6
	ADDQ $8, SI
	ADDQ $64, DI
	DECQ CX
	JNZ code

	VMOVUPD (R9), Z7             // sum of h
	VMOVUPD 64(R9), Z8           // of h*x
	VMOVUPD 128(R9), Z9          // of h*x*x
	VMULPD Z5, Z7, Z10
	VMULPD Z4, Z4, Z11
	VSUBPD Z11, Z10, Z10         // det
	VBROADCASTSD small<>(SB), Z11
	VMULPD Z7, Z11, Z11
	VMULPD Z5, Z11, Z11
	VCMPPD $30, Z11, Z10, K1     // det > 1e-9 * sumH * qq
	VMULPD Z6, Z7, Z11
	VMULPD Z4, Z8, Z12
	VSUBPD Z12, Z11, Z11
	VDIVPD Z10, Z11, Z11         // scale
	VMULPD Z4, Z11, Z12
	VSUBPD Z12, Z8, Z12
	VDIVPD Z7, Z12, Z12          // bias
	VMULPD Z6, Z11, Z13
	VSUBPD Z13, Z9, Z13
	VMULPD Z8, Z12, Z14
	VSUBPD Z14, Z13, Z13         // err
	VDIVPD Z7, Z4, Z14           // mean code
	VPXORQ Z15, Z15, Z15
	VCMPPD $30, Z15, Z11, K2     // scale > 0
	KANDW K1, K2, K1
	VBROADCASTSD inf<>(SB), Z15
	VMOVAPD Z13, K1, Z15
	VMOVUPD Z11, (R10)
	VMOVUPD Z12, 64(R10)
	VMOVUPD Z15, 128(R10)
	VMOVUPD Z14, 192(R10)
	VZEROUPPER
	RET

// func chooseLanes(x *laneValues, h *float64, n int, top int32, scale, bias *[lanes]float64, codes *laneCodes, err *[lanes]float64)
TEXT ·chooseLanes(SB), NOSPLIT, $0-64
	MOVQ x+0(FP), DI
	MOVQ h+8(FP), SI
	MOVQ n+16(FP), CX
	MOVL top+24(FP), AX
	MOVQ scale+32(FP), R10
	MOVQ bias+40(FP), R11
	MOVQ codes+48(FP), R8
	MOVQ err+56(FP), R9
	VMOVUPD (R10), Z14
	VMOVUPD (R11), Z15
	VBROADCASTSD one<>(SB), Z0
	VDIVPD Z14, Z0, Z0 // 1 / scale
	VMULPD Z0, Z15, Z2
	VBROADCASTSD half<>(SB), Z1
	VSUBPD Z2, Z1, Z1  // 0.5 - bias*inv
	VPXOR Y2, Y2, Y2
	VPBROADCASTD AX, Y3
	VPXORQ Z4, Z4, Z4

choose:
	VMOVUPD (DI), Z7
	VMULPD Z0, Z7, Z8
	VADDPD Z1, Z8, Z8
	VCVTTPD2DQ Z8, Y9
	VPMAXSD Y2, Y9, Y9
	VPMINSD Y3, Y9, Y9
	VPMOVDB Y9, (R8)
	VCVTDQ2PD Y9, Z10
	VMULPD Z14, Z10, Z10
	VSUBPD Z10, Z7, Z10  // Z7 - Z10
	VSUBPD Z15, Z10, Z10
	VMULPD Z10, Z10, Z10
	VBROADCASTSD (SI), Z11
	VMULPD Z10, Z11, Z10
	VADDPD Z10, Z4, Z4
	ADDQ $8, SI
	ADDQ $8, R8
	ADDQ $64, DI
	DECQ CX
	JNZ choose

	VMOVUPD Z4, (R9)
	VZEROUPPER
	RET
