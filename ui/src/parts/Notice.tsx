import { Button, Stack, Text, Title } from '@mantine/core'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { partTexts } from './texts'

/** What stands where there is nothing to show: why, and what to do. */
export function Notice(props: { icon?: ReactNode; title: string; children?: ReactNode; testId?: string }) {
  return (
    <Stack align="center" justify="center" gap="xs" p="xl" h="100%" data-testid={props.testId}>
      {props.icon}
      <Title order={2} size="h4" ta="center">
        {props.title}
      </Title>
      {typeof props.children === 'string' ? (
        <Text c="var(--quiet)" ta="center" maw={560}>
          {props.children}
        </Text>
      ) : (
        props.children
      )}
    </Stack>
  )
}

/** What the server said against a request, and a way to ask again. */
export function Failure({ error, retry }: { error: Error; retry?: () => void }) {
  const { t } = useTranslation(partTexts)
  return (
    <Notice title={t('failed')} testId="failure">
      <Text c="var(--quiet)" ta="center" maw={560}>
        {error.message}
      </Text>
      {retry && (
        <Button variant="default" onClick={retry}>
          {t('again')}
        </Button>
      )}
    </Notice>
  )
}
