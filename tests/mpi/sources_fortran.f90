! SPDX-License-Identifier: Apache-2.0
!
! What sources.c does, in Fortran: a number that depends on what no recording holds; a reduction that agrees, and one of
! that number. Usage: sources_fortran KIND (none wtime system_clock cpu_time date random)
program sources_fortran
  use mpi
  use, intrinsic :: iso_fortran_env, only : int64, real64
  implicit none
  integer :: rank, error, fields(8)
  integer(int64) :: count
  real(real64) :: number, one, total, began
  character(16) :: kind

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call get_command_argument(1, kind)
  number = 1.5d0
  one = 1
  select case (kind)
  case ('wtime')
    began = MPI_Wtime()
    number = MPI_Wtime() - began
  case ('system_clock')
    call system_clock(count)
    number = real(count, real64)
  case ('cpu_time')
    call cpu_time(number)
  case ('date')
    call date_and_time(values=fields)
    number = fields(8) + 1000 * fields(7)
  case ('random')
    call random_number(number)
  end select
  call MPI_Allreduce(one, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  call MPI_Allreduce(number, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  if (rank == 0) print '(a, z16.16)', 'sources_fortran ', total
  call MPI_Finalize(error)
end program sources_fortran
