! SPDX-License-Identifier: Apache-2.0
!
! The Fortran interface of resil.h: the same records as steps.c makes.
program steps
  use mpi
  use resil
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: rank, error, i
  real(8) :: energy, total
  call resil_step("before MPI_Init")
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  energy = 1.5d0
  do i = 0, 1
    call resil_step("pressure solve   ")
    call MPI_Allreduce(energy, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    call resil_norm("energy", energy / 3)
    call resil_step("velocity update")
    call resil_norm("energy", -0.0d0)
    call resil_checksum("state", int(z'deadbeefcafef00d', c_int64_t))
    call resil_count("iterations", int(-7 + i, c_int64_t))
  end do
  if (resil_drain() /= 0) stop 1
  print '(a, i0, a, f0.1)', "rank ", rank, ": ", total
  call MPI_Finalize(error)
  call resil_step("after MPI_Finalize")
end program
