! SPDX-License-Identifier: Apache-2.0
!
! resil doctor: are the calls of a Fortran program seen?
program doctor
  use mpi
  implicit none
  integer :: rank, total, ierror
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  call MPI_Finalize(ierror)
end program doctor
