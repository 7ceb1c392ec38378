import { Button, Modal, PasswordInput, Text } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { change } from '~/api/client'
import { useConnection } from '~/api/connection'
import { dialogTexts } from './texts'

/** The login dialog, shown if the server requires its token. */
export function Login() {
  const { t } = useTranslation(dialogTexts)
  const needsLogin = useConnection((connection) => connection.needsLogin)
  const client = useQueryClient()
  const [token, setToken] = useState('')
  const { mutate, isPending, error } = useMutation({
    mutationFn: () => change('POST', 'login', { token: token.trim() }),
    onSuccess: async () => {
      setToken('')
      useConnection.setState({ needsLogin: false })
      useConnection.getState().tryNow()
      await client.invalidateQueries()
    },
  })
  return (
    <Modal opened={needsLogin} onClose={() => undefined} withCloseButton={false} title={t('login')} centered>
      <div data-testid="login">
        <form
          onSubmit={(event) => {
            event.preventDefault()
            mutate()
          }}
        >
          <Text c="var(--quiet)" mb="sm">
            {t('loginText')}
          </Text>
          <PasswordInput
            label={t('token')}
            value={token}
            onChange={(event) => setToken(event.currentTarget.value)}
            error={error?.message}
            autoComplete="current-password"
            data-autofocus
          />
          <Button type="submit" mt="md" fullWidth loading={isPending} disabled={token.trim() === ''}>
            {t('enter')}
          </Button>
        </form>
      </div>
    </Modal>
  )
}
