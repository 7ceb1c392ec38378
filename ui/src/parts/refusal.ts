import { notifications } from '@mantine/notifications'

/** Show what the server says against something that a person asked for. */
export function showRefusal(error: unknown): void {
  const message = error instanceof Error ? error.message : String(error)
  notifications.show({ color: 'red', message, autoClose: 10_000 })
}
