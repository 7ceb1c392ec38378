import { Button, Stack, Text, Title } from '@mantine/core'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { partTexts } from './texts'

/** Fills an empty view: says why there is nothing to show, and what to do. */
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

/** The error of a request, with a button to retry. */
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
