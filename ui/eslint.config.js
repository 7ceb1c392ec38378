import hooks from 'eslint-plugin-react-hooks'
import { defineConfig } from 'eslint/config'
import typescript from 'typescript-eslint'

export default defineConfig(
  { ignores: ['dist', 'src/api/schema.d.ts'] },
  {
    files: ['**/*.{ts,tsx}'],
    extends: [typescript.configs.strictTypeChecked, hooks.configs.flat.recommended],
  },
  {
    files: ['**/*.{ts,tsx}'],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      'max-lines': ['error', 400],
    },
  },
)
