import { tell } from '~/state/messages'

/** Show what the server says against something that a person asked for. */
export function showRefusal(error: unknown): void {
  const message = error instanceof Error ? error.message : String(error)
  tell(message, 'error')
}
