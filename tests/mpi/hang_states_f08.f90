! SPDX-License-Identifier: Apache-2.0
!
! Three of hang_states.c's scenes through the Fortran 2008 bindings:   hang_states_f08 DIR
program hang_states_f08
  use mpi_f08
  use iso_c_binding, only : c_int
  implicit none
  interface
    integer(c_int) function usleep(microseconds) bind(c)
      import :: c_int
      integer(c_int), value :: microseconds
    end function
  end interface
  character(len=512) :: directory
  integer :: rank, value = 0, other = 0
  double precision :: sums(4), totals(4)
  type(MPI_Request) :: requests(2)

  call get_command_argument(1, directory)
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)

  call MPI_Barrier(MPI_COMM_WORLD)
  if (rank == 0) then
    call MPI_Recv(value, 1, MPI_INTEGER, 1, 11, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  else
    call wait_for_go("f08_recv")
    call MPI_Send(value, 1, MPI_INTEGER, 0, 11, MPI_COMM_WORLD)
  end if

  call MPI_Barrier(MPI_COMM_WORLD)
  if (rank == 0) then
    call MPI_Irecv(value, 1, MPI_INTEGER, MPI_ANY_SOURCE, 22, MPI_COMM_WORLD, requests(1))
    call MPI_Issend(other, 1, MPI_INTEGER, 1, 24, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  else
    call wait_for_go("f08_waitall")
    call MPI_Send(value, 1, MPI_INTEGER, 0, 22, MPI_COMM_WORLD)
    call MPI_Recv(other, 1, MPI_INTEGER, 0, 24, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  end if

  call MPI_Barrier(MPI_COMM_WORLD)
  sums = 1
  if (rank == 1) call wait_for_go("f08_allreduce")
  call MPI_Allreduce(sums, totals, 4, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  call MPI_Finalize()
  if (rank == 0) print '(a)', "hang_states: ok"

contains

  subroutine wait_for_go(scene)
    character(len=*), intent(in) :: scene
    logical :: there
    integer(c_int) :: ignored
    do
      inquire(file=trim(directory) // "/go." // scene, exist=there)
      if (there) return
      ignored = usleep(2000)
    end do
  end subroutine

end program
