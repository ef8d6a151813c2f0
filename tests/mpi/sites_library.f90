! SPDX-License-Identifier: Apache-2.0
!
! A shared library in Fortran that calls MPI, for sites.c and sites_fortran.f90: built once by each of the three interfaces, and
! once more by another name. Compiled with -cpp and one of USE_MPIF, USE_MPI and USE_F08.
subroutine step(what, value)
#if defined(USE_F08)
  use mpi_f08
  implicit none
#elif defined(USE_MPI)
  use mpi
  implicit none
#else
  implicit none
  include 'mpif.h'
#endif
  integer :: what, rank, error
  double precision :: value, total, many(64)

  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  select case (what)
  case (1)
    call MPI_Allreduce(value, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    value = total
  case (2)
    many = value
    if (rank == 0) then
      call MPI_Send(many, 64, MPI_DOUBLE_PRECISION, 1, 7, MPI_COMM_WORLD, error)
    else
      call MPI_Recv(many, 64, MPI_DOUBLE_PRECISION, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
    end if
  case (3)
    call MPI_Recv(many, 64, MPI_DOUBLE_PRECISION, 1 - rank, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
  end select
end subroutine
