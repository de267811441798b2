// Package calib measures: a model (which op loses how much quality at which
// precision), a plan or store (how far its distributions are from the
// reference), and a machine (disk, kernels, memory).
//
// Quality is the teacher-forced KL divergence from the reference, in nats per
// token, on text that is split by document into parts: one to fit codes and
// scales, one for the link, one to test.
package calib
