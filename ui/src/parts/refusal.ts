import { tell } from '~/state/messages'

/** Show the error of a request as a message. */
export function showRefusal(error: unknown): void {
  const message = error instanceof Error ? error.message : String(error)
  tell(message, 'error')
}
